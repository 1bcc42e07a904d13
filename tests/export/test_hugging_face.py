"""An export as a `MarianMTModel`: read back here, and by transformers itself."""

import contextlib
import dataclasses
import io
import json
import sys

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="needs the extra convert")

from keras_transformer.config import DecodingConfig
from keras_transformer.convert.marian import read_marian
from keras_transformer.convert.tensor_files import read_tensors
from keras_transformer.export import export_hugging_face, hugging_face, verification
from keras_transformer.export.verification import ExportError, Verification
from keras_transformer.models import RnnSeq2Seq, Transformer
from keras_transformer.tokenizers import MarianTokenizer, SentencePieceTokenizer
from keras_transformer.translation.translator import Translator

DECODING = DecodingConfig(beam_size=3, max_length=12, max_source_length=25)
SIZES = dict(num_layers=2, num_decoder_layers=1, d_model=24, ff_dim=40, num_heads=3)
MARIAN = dict(position_layout="concatenated", layer_norm_epsilon=1e-5)


@pytest.fixture
def new_translator(tokenizer, other_tokenizer, randomize):
    """A function that makes a translator with random weights, with one vocabulary or two."""

    def new_translator(separate=False, marian=False, **arguments):
        tokenizers = [tokenizer, other_tokenizer if separate else None]
        decoding = DECODING
        if marian:
            pieces = tokenizer.pieces[:4] + [">>deu<<"] + tokenizer.pieces[:50:-1]
            tokenizers[0] = MarianTokenizer.from_parts(pieces, tokenizer.sentence_piece_model)
            decoding = dataclasses.replace(decoding, length_normalization="length")
        sizes = [t.vocab_size for t in tokenizers if t is not None]
        model = Transformer(*sizes, **{**SIZES, **MARIAN, **arguments})
        model.build()
        randomize(model, seed=1)
        if marian:
            table = model.source_embedding.embeddings.numpy()
            table[[0, 2]] = 0.0  # padding, with which their decoder starts
            model.source_embedding.embeddings.assign(table)
        if model.output_biases is not None:
            model.output_biases.assign(np.linspace(-1, 1, model.output_vocab_size))
        return Translator(model, *tokenizers, decoding)

    return new_translator


@pytest.fixture
def unverified(monkeypatch):
    """Leaves out the fresh process, where the test itself reads the files."""
    monkeypatch.setattr(hugging_face, "verify_greedy", lambda *_: Verification(1, 0))


def weights_of(model):
    """Returns the weights of a model: dict from name to array."""
    return {w.path.partition("/")[2]: w.numpy() for w in model.weights}


KINDS = [
    dict(),
    dict(marian=True, output_bias=True, activation="silu", scale_embeddings=False),
    dict(separate=True, tie_output=False, activation="gelu"),
    dict(share_embeddings=False, activation="gelu_tanh"),
]


@pytest.mark.parametrize("arguments", KINDS, ids=str)
def test_what_is_written_is_read_again_bit_for_bit(arguments, new_translator, tmp_path, unverified):
    translator = new_translator(**arguments)
    first = export_hugging_face(translator, tmp_path / "models")
    read = read_marian(first, lambda line: None)
    ours, theirs = weights_of(translator.model), weights_of(read.model)
    biases = theirs.pop("output_biases")
    if translator.model.output_bias:
        expected = ours.pop("output_biases")
        np.testing.assert_array_equal(biases[3:], expected[3:])  # 0 to 2 are never chosen
    else:
        assert set(biases.tolist()) == {0.0, -100.0}
    assert list(ours) == list(theirs)
    for name, weight in ours.items():
        if arguments.get("separate") and name.endswith("source_embedding/embeddings"):
            weight, theirs[name] = (np.delete(table, 2, axis=0) for table in (weight, theirs[name]))
        np.testing.assert_array_equal(weight, theirs[name], err_msg=name)
    assert (read.decoding.max_length, read.decoding.max_source_length) == (12, 25)
    assert read.decoding.beam_size == 3
    expected = 0.6 if arguments.get("marian") else 0.45
    assert read.decoding.length_penalty == pytest.approx(expected)

    second = export_hugging_face(read, tmp_path / "models")
    assert second.name == "2"
    files = [path for path in second.iterdir() if path.is_file()]
    assert len({path.stat().st_mode for path in files}) == 1  # that of the umask
    for name in ("vocab.json", "source.spm", "target.spm", "tokenizer_config.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    before, after = read_tensors(first), read_tensors(second)
    assert set(before) == set(after)
    for name in set(before) - {"final_logits_bias"}:
        np.testing.assert_array_equal(before[name], after[name])


def test_added_tokens_are_written_and_read_again(new_translator, tmp_path, unverified):
    translator = new_translator(marian=True)
    tokenizer = translator.tokenizer
    first, second = tokenizer.pieces[5:7]
    added = {first: False, second: True}
    translator.tokenizer = type(tokenizer).from_parts(
        tokenizer.pieces, tokenizer.sentence_piece_model, added
    )
    path = export_hugging_face(translator, tmp_path / "models")
    assert read_marian(path, lambda line: None).tokenizer.added_tokens == added


def test_it_is_proved_in_another_process(new_translator, tmp_path, monkeypatch, forking, eagerly):
    translator = new_translator()
    short = dataclasses.replace(DECODING, beam_size=1, max_length=5)
    translator = Translator(translator.model, translator.tokenizer, decoding=short)
    with forking(verification):
        path = export_hugging_face(translator, tmp_path / "models")
    settings = json.loads((path / "assets.extra/keras_transformer.json").read_text())
    assert settings["format"] == "hugging_face"
    assert settings["verification"]["num_texts"] == 64 + 7 + 8
    assert (path / "SHA256SUMS").exists()

    def in_this_process(program, path, request):
        stdin, stdout = io.StringIO(json.dumps(request)), io.StringIO()
        monkeypatch.setattr(sys, "argv", [program, str(path)])
        monkeypatch.setattr(sys, "stdin", stdin)
        with contextlib.redirect_stdout(stdout):
            hugging_face.main()
        return json.loads(stdout.getvalue())

    right = hugging_face._tensors
    monkeypatch.setattr(verification, "_answer_of_fresh_process", in_this_process)

    def wrong(*arguments):
        tensors = right(*arguments)
        tensors["model.decoder.layers.0.fc2.weight"][:5] *= -1
        return tensors

    monkeypatch.setattr(hugging_face, "_tensors", wrong)
    with pytest.raises(ExportError, match="must (answer|translate) as"):
        export_hugging_face(translator, tmp_path / "models")
    assert [version.name for version in (tmp_path / "models").iterdir()] == ["1"]


@pytest.mark.parametrize(
    "arguments, received",
    [
        (dict(normalize_first=True), "normalize_first=True"),
        (dict(positions="learned"), "positions='learned'"),
        (dict(position_layout="interleaved"), "position_layout='interleaved'"),
        (dict(layer_norm_epsilon=1e-6), "layer_norm_epsilon=1e-06"),
        (dict(attention={"name": "local", "window": 4}), "'local'"),
        (dict(cross_attention="linear"), "cross_attention='linear'"),
        (dict(activation="elu"), "activation='elu'"),
    ],
    ids=str,
)
def test_what_marian_does_not_have_is_refused_by_name(
    arguments, received, new_translator, tmp_path
):
    translator = new_translator(**arguments)
    with pytest.raises(ValueError, match="as Marian has. Received: ") as error:
        export_hugging_face(translator, tmp_path / "models")
    assert received in str(error.value)
    assert not (tmp_path / "models").exists()


def test_other_models_and_tokenizers_are_refused(tokenizer, sentence_pairs, tmp_path):
    model = RnnSeq2Seq(tokenizer.vocab_size, d_model=8)
    with pytest.raises(ValueError, match="Received: the model RnnSeq2Seq"):
        export_hugging_face(Translator(model, tokenizer), tmp_path)
    sources = [source for source, _ in sentence_pairs]
    tagged = SentencePieceTokenizer.train(sources, vocab_size=120, user_symbols=[">>deu<<"])
    model = Transformer(tagged.vocab_size, **SIZES, **MARIAN)
    with pytest.raises(ValueError, match="Received: its token >>deu<<"):
        export_hugging_face(Translator(model, tagged), tmp_path)


@pytest.mark.parametrize(("sizes", "place"), [((120, 90), 89), ((90, 120), 88)], ids=str)
def test_padding_has_one_id_that_both_vocabularies_have(
    sizes, place, corpus, randomize, tmp_path, unverified
):
    """As `transformers` demands; the start token of the target is one more token there."""
    sides = corpus.source, corpus.target
    tokenizers = list(map(SentencePieceTokenizer.train, sides, sizes))
    model = Transformer(*sizes, **{**SIZES, **MARIAN})
    model.build()
    randomize(model, seed=2)
    path = export_hugging_face(Translator(model, *tokenizers, DECODING), tmp_path)
    config = json.loads((path / "config.json").read_text())
    names = ("vocab.json", "vocab_size"), ("target_vocab.json", "decoder_vocab_size")
    for tokenizer, (name, size) in zip(tokenizers, names, strict=True):
        vocabulary = json.loads((path / name).read_text())
        assert vocabulary["<pad>"] == config["pad_token_id"] == place < config[size]
        assert sorted(vocabulary.values()) == list(range(config[size]))
        assert set(tokenizer.pieces) - {"<s>"} <= set(vocabulary)
    read = read_marian(path, lambda line: None)
    outside = {**config, "pad_token_id": min(sizes)}
    (path / "config.json").write_text(json.dumps(outside))
    (path / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match=f"Received: pad_token_id={min(sizes)}"):
        read_marian(path, lambda line: None)
    (path / "config.json").write_text(json.dumps(config))
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason="needs the extra test-backends")
    texts = corpus.source[:8]
    hugging_face.compare_with_transformers(path, read, texts)
    read.model.source_embedding.embeddings.assign(read.model.source_embedding.embeddings * 1.1)
    with pytest.raises(ExportError, match="logits that differ by up to"):
        hugging_face.compare_with_transformers(path, read, texts)


@pytest.mark.parametrize("arguments", KINDS, ids=str)
def test_transformers_translates_the_same(
    arguments, new_translator, texts, tmp_path, unverified, eagerly
):
    transformers = pytest.importorskip("transformers", reason="needs the extra test-backends")
    torch = pytest.importorskip("torch", reason="needs the extra test-backends")
    torch.set_num_threads(1)  # threads of PyTorch that wait take time of others
    translator = new_translator(**arguments)
    path = export_hugging_face(translator, tmp_path)
    model, info = transformers.MarianMTModel.from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    tokenizer = transformers.MarianTokenizer.from_pretrained(path)
    texts = [text for text in texts if text.strip()][:24]
    if arguments.get("marian"):
        texts[:8] = [">>deu<<" + text for text in texts[:8]]
    expected = Translator(
        translator.model,
        translator.tokenizer,
        translator.target_tokenizer,
        dataclasses.replace(translator.decoding, beam_size=1),
    )(texts)
    found = []
    for text in texts:
        inputs = tokenizer([text], return_tensors="pt", truncation=True)
        with torch.no_grad():
            ids = model.generate(**inputs, num_beams=1, max_length=13)
        found += tokenizer.batch_decode(ids, skip_special_tokens=True, use_source_tokenizer=False)
    same = [ours == theirs for ours, theirs in zip(expected, found, strict=True)]
    assert sum(same) >= 0.95 * len(texts), [
        pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1]
    ]


def test_a_file_of_transformers_is_the_same_after_a_round_trip(
    new_translator, tmp_path, unverified
):
    transformers = pytest.importorskip("transformers", reason="needs the extra test-backends")
    pytest.importorskip("torch", reason="needs the extra test-backends")
    translator = new_translator(marian=True, output_bias=True)
    theirs = export_hugging_face(translator, tmp_path / "models")
    model = transformers.MarianMTModel.from_pretrained(theirs)
    for parameter in model.parameters():  # other numbers than ours
        parameter.data.mul_(0.75)
    model.save_pretrained(theirs)
    (theirs / "SHA256SUMS").unlink()  # of the numbers before
    again = export_hugging_face(read_marian(theirs, lambda line: None), tmp_path / "models")
    before, after = read_tensors(theirs), read_tensors(again)
    assert set(before) == set(after)
    for name, tensor in before.items():
        np.testing.assert_array_equal(tensor, after[name], err_msg=name)
