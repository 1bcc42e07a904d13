"""OPUS-MT in Hugging Face's files, against `MarianMTModel` and `MarianTokenizer`."""

import dataclasses
import gzip
import json
import os
import pathlib
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.config import Config, DecodingConfig
from keras_transformer.convert import (
    from_hugging_face,
    import_run,
    marian_model,
    read_marian,
    tensor_files,
)
from keras_transformer.convert.tensor_files import read_pytorch_tensors, write_tensors
from keras_transformer.data import ParallelCorpus
from keras_transformer.files.checksums import write_checksums
from keras_transformer.quickstart.phrases import phrase_corpus
from keras_transformer.training import train
from keras_transformer.translation.evaluation import bleu
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator
from tests.convert.conftest import cut, remove

pytest.importorskip("safetensors.numpy")

ODD_TEXTS = [
    "",
    " \t\u3000",
    ">>deu<< A dog.",
    ">>deu<<A dog.",
    ">>xxx<< A dog.",  # unknown, but one token
    "A >>deu<< dog.",
    ">>de u<< ",
    ">>a\nb<< x",
    ">><<",
    ">>a",
    "<<>>",
    ">>deu<<>>deu<< x",
    "\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f!",
    "Straße мир 世界 שלום नमस्ते e\u0301",
    "مرحبا بالعالم",
    "a\x00b\x07c\x1b[0m",
    "two\nlines\r\tand a tab",
    "\u200b\u200f\u202e\ufeff invisible \u2028 ends",
    "  many   spaces  ",
    "Ａ ｗｉｄｔｈ ﬁ ﷺ",
    "世" * 40 + "a" + "界",
    "▁ under ▁score",
    "x" * 300,
    'don\'t "quote" `it` ... ---',
]


def in_their_order(logits, translator, vocab_size):
    """Returns our logits `(..., V)` as theirs: end, unknown, the pieces, padding."""
    order = [3, 1, *range(4, vocab_size + 1), 0]
    assert len(order) == vocab_size == translator.model.output_vocab_size - 1
    return logits[..., order]


def in_our_ids(ids, vocab_size):
    """Returns their ids as ours; padding is the last of the vocabulary, before added tokens."""
    ours = {0: 3, 1: 1, vocab_size - 1: 0}
    return np.vectorize(lambda i: ours.get(i, i + 2 - (i >= vocab_size)))(ids)


def test_special_tokens_have_our_ids_and_the_start_is_a_zero_vector(marian, tmp_path):
    tensors = marian.hugging_face(tmp_path)
    translator = read_marian(tmp_path)
    model, pieces = translator.model, translator.tokenizer.pieces
    table, theirs = model.source_embedding.get_weights()[0], tensors["model.shared.weight"]
    assert pieces[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert pieces[4:] == list(marian.ids)[2:-1] == translator.target_tokenizer.pieces[4:]
    assert not table[0].any() and not table[2].any()
    np.testing.assert_array_equal(table[[1, 3]], theirs[[1, 0]])
    np.testing.assert_array_equal(table[4:], theirs[2:-1])
    biases = ops.convert_to_numpy(model.output_biases)
    assert biases[2] == -100
    np.testing.assert_array_equal(biases[[0, 1, 3]], tensors["final_logits_bias"][0, [-1, 1, 0]])
    np.testing.assert_array_equal(biases[4:], tensors["final_logits_bias"][0, 2:-1])
    assert translator.decoding == DecodingConfig(3, 1.0, "length", 63, 63, 0, True)


def test_settings_of_the_search_are_those_of_the_files(marian, tmp_path):
    generation = {
        "num_beams": 6,
        "length_penalty": 0.5,
        "max_length": 40,
        "bad_words_ids": [[marian.vocab_size - 1], [9], [0]],
        "forced_bos_token_id": 30,
        "no_repeat_ngram_size": 3,
        "early_stopping": True,
        "repetition_penalty": 1.2,
        "min_length": 5,
        "encoder_repetition_penalty": 1.0,
    }
    marian.hugging_face(tmp_path, generation=generation, tokenizer={"model_max_length": 30})
    lines = []
    translator = read_marian(tmp_path, lines.append)
    assert translator.decoding == DecodingConfig(6, 0.5, "length", 39, 29, 0, True, 5, 3, 1.2)
    biases = ops.convert_to_numpy(translator.model.output_biases)
    assert biases[9 + 2] == -100
    assert biases[3] > -1  # 0 is the end token, without which no translation would end
    assert [line.partition(",")[0] for line in lines] == [
        "not applied early_stopping=True",
        "not applied forced_bos_token_id=30",
    ]


def test_what_a_search_here_does_not_do_is_named_and_the_files_are_not_mixed(marian, tmp_path):
    """A search in config.json is not read beside generation_config.json, as in `transformers`."""
    config = {"num_beams": 2, "num_beam_groups": 2, "new_in_the_model": [1], "use_cache": True}
    generation = {"forced_eos_token_id": 0, "new_in_the_search": 1, "num_beams": 6, "top_k": 50}
    tokenizer = {"clean_up_tokenization_spaces": True, "extra_special_tokens": {}, "a\nb": "c\nd"}
    marian.hugging_face(tmp_path, config, generation, tokenizer)
    lines = []
    assert read_marian(tmp_path, lines.append).decoding.beam_size == 6
    assert [line.partition(",")[0] for line in lines] == [
        "not applied forced_eos_token_id=0",
        "not applied new_in_the_model=[1]",
        "not applied new_in_the_search=1",
        r"not applied a\nb='c\nd'",
        "not applied clean_up_tokenization_spaces=True",
    ]


def test_an_ordinary_token_that_starts_may_also_be_written(marian, tmp_path):
    tensors = marian.hugging_face(tmp_path, {"decoder_start_token_id": 30})
    translator = read_marian(tmp_path)
    assert translator.tokenizer.pieces[4:] == list(marian.ids)[2:-1]
    table = translator.model.source_embedding.get_weights()[0]
    for i in (2, 30 + 2):  # the start token, and the ordinary one
        np.testing.assert_array_equal(table[i], tensors["model.shared.weight"][30])


def resized(marian, directory):
    """Writes a model with six rows more than its vocabulary has tokens."""
    tensors = marian.hugging_face(directory, {"vocab_size": marian.vocab_size + 6})
    for name, axis in (("model.shared.weight", 0), ("final_logits_bias", 1)):
        more = np.ones_like(tensors[name].take([0], axis))
        tensors[name] = np.concatenate([tensors[name], *6 * [more]], axis)
    write_tensors(directory / "model.safetensors", tensors)


def test_rows_beyond_the_vocabulary_are_left_out_and_added_tokens_are_read(marian, tmp_path):
    """As after `add_tokens` and `resize_token_embeddings` to a multiple of 8."""
    (tmp_path / "resized").mkdir()
    size = marian.vocab_size
    marian.hugging_face(tmp_path)
    expected = read_marian(tmp_path)
    resized(marian, tmp_path / "resized")
    added = {"<unk>": 1, "Häuschen": size, "<new>": size + 1}
    (tmp_path / "resized" / "added_tokens.json").write_text(json.dumps(added))
    found = read_marian(tmp_path / "resized", lambda line: pytest.fail(line))
    assert found.tokenizer.pieces == [*expected.tokenizer.pieces, "Häuschen", "<new>"]
    inputs = {"source_ids": np.array([[5, 9, 3]]), "target_ids": np.array([[2, 7]])}
    logits, others = (ops.convert_to_numpy(x.model(inputs)) for x in (expected, found))
    np.testing.assert_allclose(others[..., :-2], logits, rtol=1e-5, atol=1e-5)


def test_tokens_beside_the_vocabulary_that_are_not_read_as_there_are_named(marian, tmp_path):
    tag = {"content": ">>deu<<", "single_word": True}
    tokenizer = {
        "added_tokens_decoder": {str(marian.ids[">>deu<<"]): tag},
        "additional_special_tokens": ["<lost>", "世"],
        "bos_token": "<s>",
        "my_token": "<mine>",
    }
    marian.hugging_face(tmp_path, tokenizer=tokenizer)
    lines = []
    translator = read_marian(tmp_path, lines.append)
    assert [line.partition(",")[0] for line in lines] == [
        "not applied special token '<s>'",
        "not applied special token '<mine>'",
        "not applied special token '<lost>'",
        "not applied single_word of '>>deu<<'",
    ]
    assert translator.tokenizer.added_tokens == {">>deu<<": False, "世": True}


def test_a_checkpoint_before_generation_config_has_its_search_in_config(marian, tmp_path):
    config = {"num_beams": 2, "max_length": 50, "bad_words_ids": [[marian.vocab_size - 1]]}
    config |= {"min_new_tokens": 7, "min_length": 3}  # the first one counts
    marian.hugging_face(tmp_path, config)
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    assert read_marian(tmp_path).decoding == DecodingConfig(2, 1.0, "length", 49, 63, 0, True, 8)
    (tmp_path / "generation_config.json").write_text("{}")  # all defaults of `transformers`
    assert read_marian(tmp_path).decoding.beam_size == 1


def change(name, **values):
    """Returns a function of a directory that changes a JSON file in it."""

    def change(directory):
        path = directory / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def add_token(token, i):
    return lambda directory: (directory / "added_tokens.json").write_text(json.dumps({token: i}))


def heads(number):
    return change("config", encoder_attention_heads=number, decoder_attention_heads=number)


def of_other_pieces(directory):
    path = directory / "vocab.json"
    special = "</s>", "<unk>", "<pad>"
    ids = json.loads(path.read_text())
    ids = {piece if piece in special else f"of another model {i}": i for piece, i in ids.items()}
    path.write_text(json.dumps(ids))


def too_deep(name):
    return lambda directory: (directory / name).write_text("[" * 200_000)


def without_an_entry(directory):
    path = directory / "vocab.json"
    ids = json.loads(path.read_text())
    del ids[next(piece for piece in ids if len(piece) > 1 and piece[0] == "▁")]
    path.write_text(json.dumps(ids))


@pytest.mark.parametrize(
    "damage, message",
    [
        (remove("vocab.json"), "vocab.json: No such file"),
        (remove("source.spm"), "source.spm: No such file"),
        (remove("model.safetensors"), "model.safetensors: No such file"),
        (cut("model.safetensors"), "Expected a safetensors file. Received: "),
        (cut("vocab.json"), "Expected JSON. Received: "),
        (cut("target.spm"), "Expected a SentencePiece model. Received: "),
        (without_an_entry, "has lost entries"),
        (change("vocab", x=3), "has lost entries"),
        (change("vocab", new=300), "has lost entries"),
        (change("config", vocab_size=99), "at most 99 tokens, .*Received: .*vocab.json, which"),
        (change("config", d_model=10), "of shape .*, which follows from config.json"),
        (heads(3), "d_model must be divisible by num_heads"),
        (change("config", encoder_layers=3), "Expected a tensor encoder.layers.2.self_attn.q_proj"),
        (change("config", encoder_layers=1), "and no others. Received: encoder.layers.1"),
        (change("config", decoder_ffn_dim=7), "encoder_ffn_dim=12, decoder_ffn_dim=7"),
        (change("config", normalize_before=True), "normalize_before to be False"),
        (change("config", activation_function="x"), "activation_function to be one of"),
        (change("config", decoder_start_token_id=999), "Received: decoder_start_token_id=999"),
        (change("config", eos_token_id=5), "Received: .*5"),
        (change("generation_config", eos_token_id=7), "same eos_token_id in .* and 7"),
        (change("generation_config", decoder_start_token_id=7), "decoder_start_token_id .* and 7"),
        (change("tokenizer_config", pad_token=["<pad>"]), "pad_token in tokenizer_config.json"),
        (too_deep("config.json"), "Expected JSON. Received: .*config.json"),
        (change("config", model_type="m2m_100"), "model_type='m2m_100'.* M2M100, NLLB"),
        (change("config", tie_word_embeddings=False), "Expected a tensor lm_head.weight"),
        (change("generation_config", num_beams=-1), "Received: decoding.beam_size=-1.*json"),
        (change("config", scale_embedding="true"), "scale_embedding in config.json to be true or"),
        (change("config", tie_word_embeddings="no"), "Received: tie_word_embeddings='no'"),
        (change("config", share_encoder_decoder_embeddings=1), "to be true or false"),
        (change("config", dropout="x"), "Received: dropout='x'"),
        (
            change("generation_config", num_beams=10**9),
            "beam_size to be .*from 1 to 1,000. .*=1000000000",
        ),
        (change("generation_config", num_beams=True), "Received: decoding.beam_size=True.*json"),
        (change("generation_config", length_penalty=1e30), "from 0 to 10. .*=1e[+]30"),
        (change("generation_config", max_length=0), "max_length in generation_config.json or"),
        (change("generation_config", max_length="x"), "Received: max_length='x'"),
        (change("generation_config", max_new_tokens=True), "Received: max_new_tokens=True"),
        (change("generation_config", bad_words_ids=[[1, 2]]), "Received: bad_words_ids="),
        (change("generation_config", bad_words_ids=[["x"]]), "Received: bad_words_ids="),
        (change("generation_config", bad_words_ids=[[999]]), "of the \\d+ ids .* Received: 999"),
        (change("generation_config", bad_words_ids=[[-1]]), "of the \\d+ ids .* Received: -1"),
        (change("tokenizer_config", model_max_length=-1), "Received: model_max_length=-1"),
        (change("tokenizer_config", model_max_length=0), "Received: model_max_length=0"),
        (change("tokenizer_config", model_max_length=True), "Received: model_max_length=True"),
        (change("tokenizer_config", model_max_length="x"), "Received: model_max_length='x'"),
        (change("tokenizer_config", separate_vocabs="x"), "in tokenizer_config.json to be true or"),
        (change("tokenizer_config", pad_token="</s>"), "three different .* ids 0, 1 and 0 in"),
        (change("tokenizer_config", unk_token="</s>"), "three different .* ids 0, 0 and \\d+ in"),
        (of_other_pieces, "pieces in source.spm. Received: \\d+ tokens, none of which"),
        (change("tokenizer_config", separate_vocabs=True), "one vocabulary where"),
        (change("tokenizer_config", sp_model_kwargs={"a": 1}), "Received: sp_model_kwargs"),
        (change("tokenizer_config", eos_token="[END]"), "without </s> or <unk>"),
        (
            add_token(">>deu<<", 7),
            "in added_tokens.json too. Received: '>>deu<<' with the id 7",
        ),
        (add_token("<new>", 999), "has lost entries"),
        (add_token("<new>", "x"), "the id of each token in added_tokens.json. Received: 'x' for"),
    ],
)
def test_what_cannot_be_read_is_refused(marian, damage, message, tmp_path):
    marian.hugging_face(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        read_marian(tmp_path)


@pytest.mark.parametrize(
    "sizes",
    [
        dict(d_model=2**20),
        dict(encoder_layers=10**9),
        dict(decoder_layers=10**9),
        dict(encoder_ffn_dim=10**9, decoder_ffn_dim=10**9),
    ],
    ids=str,
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_a_model_is_built(
    marian, sizes, tmp_path, monkeypatch
):
    marian.hugging_face(tmp_path, sizes)
    monkeypatch.setattr(marian_model, "Transformer", lambda *_, **__: pytest.fail("built"))
    with pytest.raises(ValueError, match="Expected .*layers.*|which follows from config.json"):
        read_marian(tmp_path)


def test_a_limit_of_more_tokens_than_positions_is_lowered_and_said(marian, tmp_path):
    """A translation of as many tokens as there are positions, less the start token."""
    lines = []
    for name in ("max_length", "max_new_tokens"):
        marian.hugging_face(tmp_path, generation={name: 10**9})
        assert read_marian(tmp_path, lines.append).decoding.max_length == 63
    assert [line.partition(",")[0] for line in lines] == [
        "not applied max_length=1000000000",
        "not applied max_new_tokens=1000000000",
    ]
    marian.hugging_face(tmp_path, generation={"max_new_tokens": 20, "length_penalty": None})
    decoding = read_marian(tmp_path, lines.append).decoding
    assert (decoding.max_length, decoding.length_penalty, len(lines)) == (20, 1.0, 2)


def test_a_tensor_that_is_there_twice_is_refused(marian, tmp_path):
    tensors = marian.hugging_face(tmp_path)
    name = "model.encoder.layers.0.fc1.weight"
    more = {**tensors, name.removeprefix("model."): tensors[name] + 1}
    write_tensors(tmp_path / "model.safetensors", more)
    with pytest.raises(ValueError, match="each tensor once.* Received: encoder.layers.0.fc1.w"):
        read_marian(tmp_path)
    write_tensors(tmp_path / "a.safetensors", tensors)
    write_tensors(tmp_path / "b.safetensors", {name: tensors[name] + 1, "other": tensors[name]})
    index = {"weight_map": {**dict.fromkeys(tensors, "a.safetensors"), "other": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=f"Expected each tensor in one of .* Received: {name} in"):
        read_marian(tmp_path)


def test_one_file_of_weights_comes_before_shards_as_in_transformers(marian, tmp_path):
    """Old shards may lie beside it."""
    tensors = marian.hugging_face(tmp_path)
    index = {"weight_map": dict.fromkeys(tensors, "old.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write_tensors(tmp_path / "old.safetensors", {name: 0 * tensors[name] for name in tensors})
    found = read_marian(tmp_path).model.encoder.blocks[0].feed_forward.inner.kernel
    kernel = tensors["model.encoder.layers.0.fc1.weight"].T
    np.testing.assert_array_equal(ops.convert_to_numpy(found), kernel)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "source.spm",
    ],
)
@pytest.mark.parametrize("make", ["link", "pipe"])
def test_what_is_named_and_cannot_be_read_is_an_error(marian, tmp_path, name, make):
    """As in the cache of a hub whose blob is missing: it is not as if there were no such file."""
    marian.hugging_face(tmp_path, generation={"num_beams": 6})
    (tmp_path / name).unlink(missing_ok=True)
    if make == "link":
        (tmp_path / name).symlink_to("../../blobs/5a")
    else:
        os.mkfifo(tmp_path / name)
    reason = {"link": "a link to .*5a, which is missing", "pipe": "not a regular file"}[make]
    with pytest.raises(ValueError, match=f"Received: .*{name}: {reason}"):
        read_marian(tmp_path)


@pytest.mark.parametrize("read", [read_marian, from_hugging_face])
def test_checksums_beside_the_files_are_checked(marian, read, tmp_path):
    """One flipped bit leaves a file that can be read, and other translations."""
    marian.hugging_face(tmp_path)
    write_checksums(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="where model.safetensors is not what .* Copy them again"):
        read(tmp_path)


def test_a_list_of_checksums_that_cannot_be_read_is_refused_in_sentences(marian, tmp_path):
    marian.hugging_face(tmp_path)
    (tmp_path / "SHA256SUMS").symlink_to("../none")
    message = "where SHA256SUMS: a link to ../none, which is missing. Copy them again"
    with pytest.raises(ValueError, match=message):
        read_marian(tmp_path)


def test_a_directory_of_something_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Expected a model of OPUS-MT: .* without either"):
        read_marian(tmp_path)
    with pytest.raises(ValueError, match="no such directory"):
        read_marian(tmp_path / "none")


def test_other_converters_name_the_way(marian, tmp_path):
    marian.hugging_face(tmp_path)
    with pytest.raises(ValueError, match="keras-transformer import DIR --output RUN"):
        from_hugging_face(tmp_path)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Keras itself needs PyTorch here")
def test_without_pytorch_its_file_is_refused_and_the_remedy_named(marian, tmp_path, monkeypatch):
    marian.hugging_face(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(
        ValueError, match="torch. Received: .*pip install .torch>=2.6., or save the model as s"
    ):
        read_marian(tmp_path)


# === Against `transformers` ===


@pytest.fixture(scope="session")
def transformers():
    pytest.importorskip("torch")
    return pytest.importorskip("transformers")


def their_model(transformers, vocab_size, **settings):
    """Returns a random `MarianMTModel` in which no bias is 0 and no scale 1."""
    import torch

    sizes = dict(d_model=24, encoder_layers=2, decoder_layers=3)
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 36)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    settings = {**sizes, "activation_function": "swish", "scale_embedding": True, **settings}
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        pad_token_id=vocab_size - 1,
        decoder_start_token_id=vocab_size - 1,
        max_position_embeddings=64,
        **settings,
    )
    torch.manual_seed(3)
    width = config.d_model
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                is_scale = name.endswith("layer_norm.weight")
                parameter.normal_(1.0 if is_scale else 0.0, 0.2 if is_scale else width**-0.5)
        tables = [stack.embed_tokens.weight for stack in (model.get_encoder(), model.get_decoder())]
        if config.share_encoder_decoder_embeddings:  # version 5 shares them only if all are tied
            tables = [model.model.shared.weight, *tables]
            for table in tables:
                table.copy_(tables[0])
        for table in tables:
            table[-1] = 0.0
        model.final_logits_bias.normal_(0.0, 0.3)
    return model


def save(model, directory):
    pad = model.config.pad_token_id
    model.generation_config.update(num_beams=4, max_length=64, bad_words_ids=[[pad]])
    model.save_pretrained(directory)


CONFIGURATIONS = {
    "as OPUS-MT": dict(),
    "relu, unscaled": dict(activation_function="relu", scale_embedding=False),
    "gelu, untied": dict(activation_function="gelu", tie_word_embeddings=False),
    "two tables": dict(share_encoder_decoder_embeddings=False),
    "two tables, untied": dict(share_encoder_decoder_embeddings=False, tie_word_embeddings=False),
}


def random_ids(vocab_size, seed=1):
    """Returns source and target ids of theirs, the source with padding at the end."""
    rng = np.random.default_rng(seed)
    source, target = (
        rng.integers(1, vocab_size - 1, (3, 9)),
        rng.integers(0, vocab_size - 1, (3, 7)),
    )
    source[1, 5:], target[:, 0] = vocab_size - 1, vocab_size - 1
    return source, target


def assert_same_logits(model, translator):
    import torch

    vocab_size = model.config.vocab_size
    source, target = random_ids(vocab_size)
    with torch.no_grad():
        expected = model(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != vocab_size - 1).long(),
            decoder_input_ids=torch.tensor(target),
        ).logits.numpy()
    target_ids = in_our_ids(target, vocab_size)
    target_ids[:, 0] = 2
    inputs = {"source_ids": in_our_ids(source, vocab_size), "target_ids": target_ids}
    found = ops.convert_to_numpy(translator.model(inputs))
    found = in_their_order(found, translator, vocab_size)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    return expected


@pytest.mark.parametrize("settings", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_logits(transformers, marian, settings, tmp_path):
    marian.hugging_face(tmp_path)  # for the tokenizers
    model = their_model(transformers, marian.vocab_size, **settings)
    save(model, tmp_path)
    expected = assert_same_logits(model, read_marian(tmp_path))
    assert expected.std() > 0.3


def test_logits_of_separate_vocabularies(transformers, marian, tmp_path):
    """The target has the pieces of both languages, the source those without a `>>deu<<`."""
    marian.hugging_face(tmp_path, tokenizer={"separate_vocabs": True})
    (tmp_path / "vocab.json").rename(tmp_path / "target_vocab.json")
    pieces = [piece for piece in marian.ids if piece not in (">>deu<<", "</s>", "<unk>", "<pad>")]
    # padding has the same id in both vocabularies, as MarianConfig has one for both
    pieces.append("of the source alone")
    pieces = ["</s>", "<unk>", *reversed(pieces), "<pad>"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    assert len(ids) == marian.vocab_size
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    two = dict(share_encoder_decoder_embeddings=False, decoder_vocab_size=marian.vocab_size)
    model = their_model(transformers, marian.vocab_size, **two)
    save(model, tmp_path)
    translator = read_marian(tmp_path)
    assert translator.model.target_vocab_size == translator.target_tokenizer.vocab_size
    assert translator.tokenizer.pieces[4:] == pieces[2:-1]
    assert_same_logits(model, translator)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    assert_same_ids(translator.tokenizer, theirs, ["A cat sleeps."], marian.vocab_size)


def test_a_pickle_of_tensors_is_read_and_one_with_code_is_not(transformers, marian, tmp_path):
    import torch

    marian.hugging_face(tmp_path)
    model = their_model(transformers, marian.vocab_size)
    save(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    path, proof = tmp_path / "pytorch_model.bin", tmp_path / "the code has run"
    torch.save(model.state_dict(), path)  # with the positions and the copies of the table
    lines = []
    assert_same_logits(model, read_marian(tmp_path, lines.append))
    assert [line.partition(",")[0] for line in lines] == ["not applied forced_eos_token_id=0"]

    class Code:
        def __reduce__(self):
            return pathlib.Path.touch, (proof,)

    torch.save({"model.shared.weight": Code()}, path)
    with pytest.raises(ValueError, match="Expected a file of tensors alone") as error:
        read_marian(tmp_path)
    assert not proof.exists()
    assert "weights_only" not in str(error.value)  # PyTorch advises to switch this off


def test_tensors_of_pytorch_that_are_larger_than_their_file_are_refused(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs the extra test-backends")
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.ones(1).expand(10**6, 10**6)}, path)
    with pytest.raises(ValueError, match="fewer numbers than its shape .1000000, 1000000"):
        read_pytorch_tensors(path)

    numbers = torch.zeros(1000, dtype=torch.float16)
    torch.save({"a": numbers, "b": numbers.view(10, 100)}, path)
    assert set(read_pytorch_tensors(path)) == {"a", "b"}
    monkeypatch.setattr(tensor_files, "memory_bytes", lambda: 7999)
    with pytest.raises(ValueError, match="may share numbers, are larger than the memory"):
        read_pytorch_tensors(path)

    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="it is compressed, which PyTorch's own files are not"):
        read_pytorch_tensors(path)


def assert_same_ids(tokenizer, theirs, texts, vocab_size, **options):
    found = tokenizer.encode(texts).to_list()
    for text, row in zip(texts, found, strict=True):
        (*expected, end) = theirs(**{**options, next(iter(options), "text"): text})["input_ids"]
        assert end == theirs.eos_token_id
        assert row == in_our_ids(expected, vocab_size).tolist() if expected else row == [], text


def test_the_tokenizer(transformers, marian, tmp_path, sentence_pairs):
    marian.hugging_face(tmp_path)
    translator = read_marian(tmp_path)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    sources, targets = map(list, zip(*sentence_pairs, strict=True))
    lines = _lines("test_2016_flickr.en.gz"), _lines("test_2016_flickr.de.gz")
    vocab_size = marian.vocab_size
    assert_same_ids(translator.tokenizer, theirs, [*sources, *ODD_TEXTS, *lines[0]], vocab_size)
    assert_same_ids(
        translator.target_tokenizer,
        theirs,
        [*targets, *ODD_TEXTS, *lines[1]],
        vocab_size,
        text_target=None,
    )
    rng = np.random.default_rng(2)
    rows = [rng.integers(1, vocab_size, n).tolist() for n in range(1, 60)]
    found = translator.target_tokenizer.decode(
        tf.ragged.constant([in_our_ids(row, vocab_size).tolist() for row in rows])
    )
    expected = theirs.batch_decode(rows, skip_special_tokens=True)
    assert [text.decode() for text in found.numpy()] == expected


ADDED_TOKENS = ["<new>", "<new>er", "Häuschen", "a b.*", "\n"]
TEXTS_WITH_ADDED_TOKENS = [
    "A <new>dog <new> cat >>deu<< x",
    "<new>>>deu<< A <new>er<new>",
    ">>deu<<<new> a",
    ">>x<new>y<< aa b.*a",
    "Häuschen HäuschenHäuschen two\nlines\n",
    "  <new>  ",
]


@pytest.mark.parametrize("file", ["added_tokens", "tokenizer_config"])
def test_added_tokens_are_whole_as_in_transformers(transformers, marian, file, tmp_path):
    """From either file; those of the first are written, and further special ones are not."""
    size = marian.vocab_size
    resized(marian, tmp_path)
    ids = {token: size + i for i, token in enumerate(ADDED_TOKENS)}
    if file == "added_tokens":
        (tmp_path / "added_tokens.json").write_text(json.dumps(ids))
    else:
        tokens = {i: {"content": token, "lstrip": True} for token, i in ids.items()}
        special = {"added_tokens_decoder": tokens, "additional_special_tokens": ["<new>"]}
        change("tokenizer_config", **special)(tmp_path)
    translator = read_marian(tmp_path, lambda line: pytest.fail(line))
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS_WITH_ADDED_TOKENS, *ODD_TEXTS]
    assert {*ids.values()} <= {i for text in texts for i in theirs(text)["input_ids"]}
    assert_same_ids(translator.tokenizer, theirs, texts, size)
    assert_same_ids(translator.target_tokenizer, theirs, texts, size, text_target=None)
    row = [5, 9, ids["<new>"], 11, ids["Häuschen"], ids["<new>"]]
    (found,) = translator.target_tokenizer.decode([in_our_ids(row, size).tolist()]).numpy()
    assert found.decode() == theirs.decode(row, skip_special_tokens=True)
    sampled = translator.tokenizer.encode_sampled(texts, 0.5, seed=1)
    for row, other in zip(translator.tokenizer.encode(texts).to_list(), sampled, strict=True):
        assert [i for i in row if i > size] == [i for i in other if i > size]


def _lines(name):
    """Returns the lines of a file of Multi30k, where it is there."""
    path = pathlib.Path(os.environ.get("KERAS_TRANSFORMER_DATA", "none"), "multi30k", name)
    return gzip.open(path, "rt").read().splitlines() if path.exists() else []


SHAPES = {
    "OPUS-MT": dict(d_model=512, layers=6, ffn_dim=2048, attention_heads=8),
    "OPUS-MT big": dict(d_model=1024, layers=6, ffn_dim=4096, attention_heads=16),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_of_the_published_shapes(transformers, marian, shape, tmp_path):
    marian.hugging_face(tmp_path)
    sizes = dict(SHAPES[shape])
    settings = {"d_model": sizes.pop("d_model")}
    for name, value in sizes.items():
        settings |= {f"encoder_{name}": value, f"decoder_{name}": value}
    model = their_model(transformers, marian.vocab_size, **settings)
    save(model, tmp_path)
    translator = read_marian(tmp_path)
    # theirs counts its table of positions; ours has one row of the tables and one bias more
    positions = 2 * 64 * settings["d_model"]
    num_theirs = sum(parameter.numel() for parameter in model.parameters()) - positions
    num_biases = marian.vocab_size + 1
    assert translator.model.count_params() == num_theirs + settings["d_model"] + num_biases
    # sums of a thousand products differ by more than 1e-4 in float32, by their order alone
    exact = translator.model.from_config({**translator.model.get_config(), "dtype": "float64"})
    exact.build()
    exact.set_weights(translator.model.get_weights())
    translator.model = exact
    expected = assert_same_logits(model.double(), translator)
    assert expected.dtype == "float64"


@pytest.fixture(scope="session")
def trained(transformers, marian_of_phrases, tmp_path_factory):
    """A directory of a `MarianMTModel` that knows some hundred phrases, trained by PyTorch."""
    import torch

    torch.set_num_threads(1)  # several threads wait for each other, on a machine that is busy
    directory, marian = tmp_path_factory.mktemp("trained"), marian_of_phrases
    marian.hugging_face(directory)
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    model = their_model(transformers, marian.vocab_size, d_model=48, decoder_layers=2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embed_positions" not in name:
                parameter.mul_(0.6)
    pairs = phrase_corpus(1200).train
    pad = marian.vocab_size - 1
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, betas=(0.9, 0.98))
    generator = np.random.default_rng(1)
    for step in range(500):
        batch = [pairs[i] for i in generator.choice(len(pairs), 32, replace=False)]
        sources, targets = zip(*batch, strict=True)
        inputs = tokenizer(list(sources), return_tensors="pt", padding=True)
        labels = tokenizer(text_target=list(targets), return_tensors="pt", padding=True).input_ids
        start = torch.full((len(batch), 1), pad)
        logits = model(**inputs, decoder_input_ids=torch.cat([start, labels[:, :-1]], 1)).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=pad, label_smoothing=0.1
        )
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 50, ((500 - step) / 200))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save(model.eval(), directory)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beam_size", "theirs", "ours"),
    [
        (1, {}, {}),
        (4, {}, {}),
        (1, {"no_repeat_ngram_size": 1, "min_length": 7}, {"no_repeat_ngram": 1, "min_length": 7}),
        (4, {"no_repeat_ngram_size": 2}, {"no_repeat_ngram": 2}),
        (4, {"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
        (4, {"min_length": 8}, {"min_length": 8}),
    ],
)
def test_strings_are_those_of_generate(
    transformers, trained, beam_size, theirs, ours, record_property
):
    """The few others: `generate` ends sooner, and has no limit of twice the source's length."""
    import torch

    their_model = transformers.MarianMTModel.from_pretrained(trained).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(trained)
    corpus = phrase_corpus(1200)
    sources = [source for source, _ in [*corpus.test, *corpus.train[:250]]]
    translator = read_marian(trained)
    decoding = dataclasses.replace(translator.decoding, beam_size=beam_size, **ours)
    parts = translator.model, translator.tokenizer, translator.target_tokenizer, decoding
    found = Translator(*parts)(sources)
    with torch.no_grad():
        inputs = tokenizer(sources, return_tensors="pt", padding=True)
        outputs = their_model.generate(**inputs, num_beams=beam_size, **theirs)
    expected = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    assert len(set(expected)) > 250 and np.mean([len(text) for text in expected]) > 15
    num_different = sum(one != other for one, other in zip(found, expected, strict=True))
    record_property("strings other than those of generate", num_different)
    assert num_different <= 0.01 * len(sources)


@pytest.mark.slow
def test_fine_tuning_on_2000_pairs_raises_its_score(trained, tmp_path, record_property):
    """A model that PyTorch has trained on 1,100 phrases; scored on phrases that are new to both."""
    pairs = phrase_corpus(6000).train[1200:]
    valid_pairs, test_pairs, train_pairs = pairs[:250], pairs[250:500], pairs[-2000:]
    run = import_run(trained, tmp_path / "imported", lambda line: None)
    training = {
        "schedule": "inverse_square_root",
        "peak_learning_rate": 0.002,
        "warmup_steps": 50,
        "batch_tokens": 1024,
        "checkpoint_every": 150,
        "max_steps": 300,
    }
    corpora = [ParallelCorpus.from_pairs(pairs) for pairs in (train_pairs[-2000:], valid_pairs)]
    config = Config().merged({"training": training})
    train(config, tmp_path / "tuned", init_from=run, corpora=corpora, write=lambda line: None)
    sources, references = zip(*test_pairs, strict=True)
    before, after = (
        bleu(load(tmp_path / name)(list(sources)), [list(references)]).value
        for name in ("imported", "tuned")
    )
    record_property("BLEU before and after 2,000 pairs", f"{before:.1f}, {after:.1f}")
    assert after > before + 5
