"""Directories of Hugging Face's: what is read from them, and what is refused."""

import json
import os
import sys

import numpy as np
import pytest

from keras_transformer.convert import from_hugging_face
from keras_transformer.convert.hugging_face import _in_order
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
    _, tokenizer = from_hugging_face(directory)
    ids = tokenizer.encode(TEXT).ids
    assert len(ids) < len(TEXT.encode()) and tokenizer.decode(ids) == TEXT


def test_a_tokenizer_of_another_kind_is_refused(directory):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", 0.0)], 0))
    tokenizer.save(str(directory / "tokenizer.json"))
    with pytest.raises(ValueError, match="Received: .*tokenizer.json, of the type Unigram"):
        from_hugging_face(directory)
    (directory / "tokenizer.json").write_text("[]")
    with pytest.raises(ValueError, match="Received: .*tokenizer.json, which is none"):
        from_hugging_face(directory)


def normalizer(**settings):
    return {"type": "BertNormalizer", "lowercase": True, "strip_accents": None, **settings}


def write_word_pieces(directory, vocabulary, model=None, **settings):
    model = {"type": "WordPiece", "vocab": vocabulary, **(model or {})}
    splitter = {"type": "BertPreTokenizer"}
    content = {"normalizer": normalizer(), "pre_tokenizer": splitter, "model": model, **settings}
    (directory / "tokenizer.json").write_text(json.dumps(content))


PIECES = ["[unused]", "[PAD]", "dog", "[CLS]", "[UNK]", "##s", "[SEP]", "."]


@pytest.mark.parametrize("as_json", [False, True])
def test_word_pieces_are_moved_and_so_are_the_rows_of_tables(tmp_path, as_json):
    """Our tokenizer has its special tokens first, in whatever order the file has them."""
    pytest.importorskip("tensorflow_text")
    if as_json:
        write_word_pieces(tmp_path, {piece: i for i, piece in enumerate(PIECES)})
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    tokenizer, order = read_tokenizer(tmp_path)
    assert tokenizer.pieces[:4] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    (ids,) = tokenizer.encode(["dogs."]).to_list()
    table = np.array([*PIECES, "none", "none"])  # tables may have more rows
    rows = _in_order("table", table, order)
    assert rows.tolist() == [*tokenizer.pieces, "none", "none"]
    assert rows[ids].tolist() == ["dog", "##s", "."]


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
    tokenizer, order = read_tokenizer(tmp_path)
    assert len(order) == len(CASES)
    sentences = SENTENCES if do_lower_case is False else [*SENTENCES, DECOMPOSED]
    for text, ids in zip(sentences, tokenizer.encode(sentences).to_list(), strict=True):
        assert tokenizer.to_pieces(ids) == theirs.tokenize(text), text


@pytest.mark.parametrize(
    "content, settings, message",
    [
        (normalizer(strip_accents=False), {}, "lowercase=True, strip_accents=False"),
        (normalizer(), {"do_lower_case": False, "strip_accents": True}, "lowercase=False, strip_"),
        (normalizer(handle_chinese_chars=False), {}, "handle_chinese_chars=False"),
        (normalizer(), {"tokenize_chinese_chars": False}, "handle_chinese_chars=False"),
        ({"type": "Lowercase"}, {}, "tokenizer.json, with 'Lowercase'"),
        (None, {}, "tokenizer.json, with None"),
        (normalizer(), 3, "Expected a JSON object. Received: .*tokenizer_config.json"),
    ],
    ids=str,
)
def test_other_normalizers_are_refused(content, settings, message, tmp_path):
    write_word_pieces(tmp_path, {p: i for i, p in enumerate(CASES)}, normalizer=content)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "model, settings, message",
    [
        ({"continuing_subword_prefix": "@@"}, {}, "continuing_subword_prefix .* with '@@'"),
        ({"max_input_chars_per_word": 20}, {}, "max_input_chars_per_word .* with 20"),
        ({}, {"pre_tokenizer": None}, "the pre-tokenizer .* with None"),
        ({}, {"pre_tokenizer": {"type": "Whitespace"}}, "the pre-tokenizer .* with 'Whitespace'"),
        ({}, {"added_tokens": [{"id": 99, "content": "<new>"}]}, r"outside .* with \['<new>'\]"),
        ({"vocab": CASES}, {}, "tokenizer.json, which is none"),
        ({"vocab": {"[PAD]": "0"}}, {}, "tokenizer.json, which is none"),
        ({"vocab": {"[PAD]": 0, "[UNK]": 0}}, {}, "tokenizer.json, which is none"),
    ],
    ids=str,
)
def test_word_pieces_that_we_would_split_otherwise_are_refused(model, settings, message, tmp_path):
    write_word_pieces(tmp_path, {p: i for i, p in enumerate(CASES)}, model, **settings)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


def test_ids_with_gaps_and_a_table_that_is_too_short(tmp_path):
    pytest.importorskip("tensorflow_text")
    write_word_pieces(tmp_path, {piece: 2 * i for i, piece in enumerate(PIECES)})
    tokenizer, order = read_tokenizer(tmp_path)
    table = np.array([piece for pair in zip(PIECES, "abcdefgh", strict=True) for piece in pair])
    rows = _in_order("table", table, order)
    assert rows.tolist() == [*tokenizer.pieces, *"abcdefgh"]
    with pytest.raises(ValueError, match=r"which has the id 14. Received: table.shape=\(14,\)"):
        _in_order("table", table[:14], order)


def test_a_vocabulary_that_is_not_utf_8(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(ValueError, match="Expected UTF-8. Received: .*vocab.txt"):
        read_tokenizer(tmp_path)


def test_the_files_of_gpt2_itself(tmp_path, sentence_pairs):
    """vocab.json and merges.txt split a text as the tokenizer.json that was made from them."""
    trained = tokenizers.ByteLevelBPETokenizer()
    texts = [text for pair in sentence_pairs for text in pair]
    special = ["<|endoftext|>"]
    trained.train_from_iterator(texts, 300, show_progress=False, special_tokens=special)
    trained.save_model(str(tmp_path))
    tokenizer, order = read_tokenizer(tmp_path)
    ids = tokenizer.encode(TEXT + "<|endoftext|>").ids
    assert order is None and tokenizer.decode(ids) == TEXT
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
    ours, _ = read_tokenizer(tmp_path)
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


def test_word_pieces_without_special_tokens_are_refused(tmp_path):
    pytest.importorskip("tensorflow_text")
    (tmp_path / "vocab.txt").write_text("[UNK]\ndog\n[CLS]\n")
    with pytest.raises(ValueError, match=r"vocab.txt, without \[PAD\], \[END\]"):
        read_tokenizer(tmp_path)


def test_no_tokenizer(tmp_path):
    assert read_tokenizer(tmp_path) == (None, None)


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
def test_a_library_that_is_not_installed(directory, sentence_pairs, library, monkeypatch):
    byte_level_bpe(directory / "tokenizer.json", sentence_pairs)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=rf"{library}. Received: .*pip install safetensors tok"):
        from_hugging_face(directory)
