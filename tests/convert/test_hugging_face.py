"""Directories of Hugging Face's: what is read from them, and what is refused."""

import json
import os
import sys

import numpy as np
import pytest
from keras import ops

from keras_transformer.convert import from_hugging_face
from keras_transformer.convert.tokenizer_files import read_tokenizer
from keras_transformer.convert.weights import Weights

safetensors = pytest.importorskip("safetensors.numpy")
tokenizers = pytest.importorskip("tokenizers")

TEXT = "The dog sees the cat. Zoë’s naïve café\n"


def byte_level_bpe(path, sentence_pairs):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    texts = [text for pair in sentence_pairs for text in pair]
    tokenizer.train_from_iterator(texts, vocab_size=300, show_progress=False)
    tokenizer.save(str(path))


def test_a_byte_level_tokenizer(directory, sentence_pairs):
    byte_level_bpe(directory / "tokenizer.json", sentence_pairs)
    tokenizer = read_tokenizer(directory)
    ids = tokenizer.encode(TEXT).ids
    assert len(ids) < len(TEXT.encode()) and tokenizer.decode(ids) == TEXT
    with pytest.raises(ValueError, match="highest id is 299. Received: vocab_size=61"):
        from_hugging_face(directory)


def test_rows_of_no_token_are_left_out(directory):
    """As after `resize_token_embeddings` to a multiple of 8."""
    expected = from_hugging_face(directory).model
    pieces = {chr(97 + i): i for i in range(25)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(pieces, []))
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    model, _ = from_hugging_face(directory)
    assert model.vocab_size == 25
    ids = np.array([[3, 9, 24]])
    logits, others = (ops.convert_to_numpy(each(ids)) for each in (expected, model))
    np.testing.assert_allclose(others, logits[..., :25], rtol=1e-5, atol=1e-5)


def test_a_tokenizer_of_another_kind_is_refused(directory):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", 0.0)], 0))
    tokenizer.save(str(directory / "tokenizer.json"))
    with pytest.raises(ValueError, match="Received: .*tokenizer.json, of the type Unigram"):
        from_hugging_face(directory)
    (directory / "tokenizer.json").write_text("[]")
    with pytest.raises(ValueError, match="Received: .*tokenizer.json: "):
        from_hugging_face(directory)


PIECES = ["[unused]", "[PAD]", "dog", "[CLS]", "[UNK]", "##s", "[SEP]", "."]


def write_word_pieces(directory):
    tokenizer = tokenizers.BertWordPieceTokenizer({piece: i for i, piece in enumerate(PIECES)})
    tokenizer.save(str(directory / "tokenizer.json"))


@pytest.mark.parametrize("as_json", [False, True])
def test_word_pieces_keep_their_ids(tmp_path, as_json):
    """In whatever order the file has them; a special token in a text stays one."""
    if as_json:
        write_word_pieces(tmp_path)
    else:
        (tmp_path / "vocab.txt").write_text("\n".join([*PIECES, "[MASK]"]) + "\n")
        (tmp_path / "added_tokens.json").write_text('{"<new>": 9}')
    tokenizer = read_tokenizer(tmp_path)
    ids = tokenizer.encode("Dogs.").ids
    assert ids == [PIECES.index(piece) for piece in ("[CLS]", "dog", "##s", ".", "[SEP]")]
    if as_json:
        (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
        assert read_tokenizer(tmp_path).encode("Dog dog").ids == [3, 4, 2, 6]
    else:
        row = tokenizer.encode("[MASK]<new>dogs", "dog")
        assert row.ids == [3, 8, 9, 2, 5, 6, 2, 6] and row.type_ids == 6 * [0] + [1, 1]


SENTENCES = ["The CAFÉS, the Café!", "naïve Œuvre", "İ Straße STRASSE", "中the中"]
DECOMPOSED = "nai\u0308ve NAI\u0308VE"
CHARACTERS = sorted({c for s in SENTENCES for c in s + s.lower() if not c.isspace()})
CASES = [
    *("[PAD] [UNK] [CLS] [SEP] the cafe café Cafe Café naive Œuvre straße E A I".split()),
    *CHARACTERS,
    *(f"##{character}" for character in "eai" + "".join(CHARACTERS)),
]
CASES = list(dict.fromkeys(CASES))


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("do_lower_case", [False, True, None])
def test_case_and_accents_are_those_of_bert(as_json, do_lower_case, tmp_path):
    """Without `do_lower_case` a tokenizer is uncased, as in `transformers`."""
    pytest.importorskip("tensorflow_text")
    transformers = pytest.importorskip("transformers")
    settings = {} if do_lower_case is None else {"do_lower_case": do_lower_case}
    theirs = transformers.BertTokenizer({piece: i for i, piece in enumerate(CASES)}, **settings)
    if as_json:
        theirs.save_pretrained(tmp_path)
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(CASES) + "\n")
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = read_tokenizer(tmp_path)
    for text in [*SENTENCES, DECOMPOSED]:
        assert tokenizer.encode(text).ids == theirs(text)["input_ids"], text


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("tokenizer_config.json", '{"do_lower_case": "no"}', "to be true or false. Received: "),
        ("tokenizer_config.json", "3", "Expected a JSON object. Received: .*tokenizer_config.json"),
        ("vocab.txt", b"[PAD]\n\xff\n", "Expected a WordPiece vocabulary. Received: .*vocab.txt"),
        ("vocab.txt", "[UNK]\ndog\n[CLS]\n", r"vocab.txt, without \[PAD\], \[SEP\]"),
        ("added_tokens.json", '{"<new>": 99}', "those of vocab.txt. Received: '<new>' with the id"),
        ("tokenizer.json", '{"model": {"type": "WordPiece", "vocab": []}}', "tokenizer.json: "),
        ("tokenizer.json", 9999 * "[", "Expected a tokenizer of .*. Received: .*tokenizer.json: "),
    ],
    ids=lambda value: str(value)[:24],
)
def test_word_pieces_that_are_damaged(name, content, message, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


def test_a_vocabulary_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "vocab.txt")
    with pytest.raises(ValueError, match="Received: .*vocab.txt: .*not a regular file"):
        read_tokenizer(tmp_path)


def test_the_files_of_gpt2_itself(tmp_path, sentence_pairs):
    """vocab.json and merges.txt split a text as the tokenizer.json that was made from them."""
    trained = tokenizers.ByteLevelBPETokenizer()
    texts = [text for pair in sentence_pairs for text in pair]
    special = ["<|endoftext|>"]
    trained.train_from_iterator(texts, 300, show_progress=False, special_tokens=special)
    trained.save_model(str(tmp_path))
    tokenizer = read_tokenizer(tmp_path)
    ids = tokenizer.encode(TEXT + "<|endoftext|>").ids
    assert tokenizer.decode(ids) == TEXT
    assert ids == trained.encode(TEXT + "<|endoftext|>").ids
    (tmp_path / "merges.txt").write_text("one_word\n")
    with pytest.raises(ValueError, match="Expected the files of a byte-level BPE. Received: "):
        read_tokenizer(tmp_path)


def test_what_lies_beside_the_files_of_gpt2_is_read_as_in_transformers(tmp_path, sentence_pairs):
    """A space before the text, other special tokens, and tokens that were added later."""
    transformers = pytest.importorskip("transformers", reason="needs the extra test-backends")
    trained, special = tokenizers.ByteLevelBPETokenizer(), ["</s>", "<pad>"]
    texts = [text for pair in sentence_pairs for text in pair]
    trained.train_from_iterator(texts, 300, show_progress=False, special_tokens=special)
    trained.save_model(str(tmp_path))
    size = trained.get_vocab_size()
    names = dict.fromkeys(["bos_token", "eos_token", "unk_token"], "</s>") | {"pad_token": "<pad>"}
    config = {**names, "add_prefix_space": True, "tokenizer_class": "GPT2Tokenizer"}
    files = {
        "tokenizer_config": config,
        "special_tokens_map": {**names, "additional_special_tokens": ["<end>"]},
        "added_tokens": {"<new>": size, "<end>": size + 1},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path)
    for text in (TEXT, "dog</s>A cat", "The <new> dog<end>", "<new>", " the dog", ""):
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
    assert ours.decode(ours.encode("dog</s><end>").ids).strip() == "dog"
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<new>": size + 3}))
    with pytest.raises(ValueError, match="Received: '<new>' with the id"):
        read_tokenizer(tmp_path)


def test_a_damaged_byte_level_tokenizer(directory, sentence_pairs):
    path = directory / "tokenizer.json"
    byte_level_bpe(path, sentence_pairs)
    content = json.loads(path.read_text())
    content["model"]["merges"] = [["no", "tokens"]]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="Expected a tokenizer .* Received: .*tokenizer.json: "):
        from_hugging_face(directory)


def test_no_tokenizer(tmp_path):
    assert read_tokenizer(tmp_path) is None


def rename(directory, old, new):
    """Renames a tensor in model.safetensors."""
    path = directory / "model.safetensors"
    tensors = safetensors.load_file(path)
    tensors[new] = tensors.pop(old)
    safetensors.save_file(tensors, path)


def test_tensors_of_another_name(directory):
    rename(directory, "transformer.ln_f.bias", "transformer.ln_f.offset")
    with pytest.raises(ValueError, match="a tensor ln_f.bias .* there remain ln_f.offset"):
        from_hugging_face(directory)


def test_masks_are_no_weights(directory):
    """Files of early versions have them."""
    path = directory / "model.safetensors"
    mask = np.tri(16, dtype="float32")[None, None]
    tensors = {**safetensors.load_file(path), "transformer.h.0.attn.bias": mask}
    tensors["transformer.h.1.attn.masked_bias"] = np.array(1, "int64")
    safetensors.save_file(tensors, path)
    from_hugging_face(directory)


def test_an_integer_tensor_is_no_weight(directory):
    path = directory / "model.safetensors"
    tensors = {**safetensors.load_file(path), "transformer.position_ids": np.arange(16)}
    safetensors.save_file(tensors, path)
    from_hugging_face(directory)
    tensors["transformer.position_ids"] = tensors["transformer.position_ids"].astype("float32")
    safetensors.save_file(tensors, path)
    with pytest.raises(ValueError, match="no others. Received: position_ids"):
        from_hugging_face(directory)


def test_each_tensor_is_taken_once():
    weights = Weights({"a": np.zeros(2)})
    assert "a" in weights
    weights.take("a", (2,))
    assert "a" not in weights
    with pytest.raises(ValueError, match="Expected a tensor a .* there remain none"):
        weights.take("a", (2,))


def break_config(directory):
    (directory / "config.json").write_text("{")


def change_type(directory):
    (directory / "config.json").write_text('{"model_type": "gpt_neox"}')


def remove_config(directory):
    (directory / "config.json").unlink()


def remove_weights(directory):
    (directory / "model.safetensors").unlink()


def damage_weights(directory):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def index(content):
    """Returns a function that leaves one shard and an index, which alone is read then."""

    def change(directory):
        (directory / "model.safetensors").rename(directory / "shard.safetensors")
        (directory / "model.safetensors.index.json").write_text(json.dumps(content))

    return change


def link_config(directory):
    (directory / "config.json").unlink()
    (directory / "config.json").symlink_to("../blobs/missing")


def pipe_weights(directory):
    (directory / "model.safetensors").unlink()
    os.mkfifo(directory / "model.safetensors")


@pytest.mark.parametrize(
    "damage, message",
    [
        (break_config, "Expected JSON. Received: .*config.json"),
        (change_type, "can be converted: .*gpt2.* Received: model_type='gpt_neox'"),
        (lambda d: (d / "config.json").write_text('{"model_type": ["gpt2"]}'), "type=.'gpt2'."),
        (remove_config, "Received: .*config.json: No such file"),
        (remove_weights, "Received: .*model.safetensors: No such file"),
        (damage_weights, "Expected a safetensors file. Received: "),
        (link_config, "Received: .*config.json: a link to ../blobs/missing, which is missing"),
        (pipe_weights, "Received: .*model.safetensors: not a regular file"),
        (
            index({"weight_map": dict.fromkeys(["a.weight", "b.weight"], "shard.safetensors")}),
            "without a.weight, b.weight",
        ),
        (index([]), "Expected a JSON object with weight_map"),
        (index({"weight_map": {"a.weight": 1}}), "Expected a JSON object with weight_map"),
        (index({"weight_map": {"a.weight": "b"}}), "Received: .*/b: No such file"),
        (
            index({"weight_map": {"a.weight": "/dev/zero"}}),
            "Received: /dev/zero: a file outside of the directory",
        ),
    ],
)
def test_damaged_directories(directory, damage, message):
    damage(directory)
    with pytest.raises(ValueError, match=message):
        from_hugging_face(directory)


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(eos_token_id=[60]), r"eos_token_id=\[60\]"),
        (dict(n_head=0), "n_head in config.json to be an integer above 0. Received: n_head=0"),
        (dict(n_embd="24"), "n_embd='24'"),
        (dict(n_layer=2.0), "n_layer=2.0"),
        (dict(n_inner=True), "n_inner=True"),
        (dict(resid_pdrop=None), "resid_pdrop=None"),
        (dict(layer_norm_epsilon="1e-5"), "layer_norm_epsilon='1e-5'"),
        (dict(layer_norm_epsilon=-1), "layer_norm_epsilon=-1"),
        (dict(activation_function=["gelu"]), r"activation_function=\['gelu'\]"),
    ],
    ids=str,
)
def test_settings_of_another_type(directory, settings, message):
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.raises(ValueError, match=f"Received: .*{message}|{message}"):
        from_hugging_face(directory)


@pytest.mark.parametrize("library", ["safetensors", "tokenizers"])
def test_a_library_that_is_not_installed(directory, library, monkeypatch):
    write_word_pieces(directory)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=rf"{library}. Received: .*pip install safetensors tok"):
        from_hugging_face(directory)
