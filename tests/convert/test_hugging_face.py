"""Directories of Hugging Face's: what is read from them, and what is refused."""

import json
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
    with pytest.raises(ValueError, match="Received: .*tokenizer.json, of the kind Unigram"):
        from_hugging_face(directory)
    (directory / "tokenizer.json").write_text("[]")
    with pytest.raises(ValueError, match="Received: .*tokenizer.json, which is none"):
        from_hugging_face(directory)


PIECES = ["[unused]", "[PAD]", "dog", "[CLS]", "[UNK]", "##s", "[SEP]", "."]


@pytest.mark.parametrize("as_json", [False, True])
def test_word_pieces_are_moved_and_so_are_the_rows_of_tables(tmp_path, as_json):
    """Our tokenizer has its special tokens first, in whatever order the file has them."""
    pytest.importorskip("tensorflow_text")
    if as_json:
        model = {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(PIECES)}}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    tokenizer, order = read_tokenizer(tmp_path)
    assert tokenizer.pieces[:4] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    (ids,) = tokenizer.encode(["dogs."]).to_list()
    rows = _in_order(np.array([*PIECES, "none", "none"]), order)  # tables may have more rows
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


def normalizer(**settings):
    return {"type": "BertNormalizer", "lowercase": True, "strip_accents": None, **settings}


@pytest.mark.parametrize(
    "content, settings, message",
    [
        (normalizer(strip_accents=False), {}, "lowercase=True, strip_accents=False"),
        (normalizer(), {"do_lower_case": False, "strip_accents": True}, "lowercase=False, strip_"),
        (normalizer(handle_chinese_chars=False), {}, "handle_chinese_chars=False"),
        (normalizer(), {"tokenize_chinese_chars": False}, "handle_chinese_chars=False"),
        ({"type": "Lowercase"}, {}, "tokenizer.json, with Lowercase"),
        (normalizer(), 3, "Expected a JSON object. Received: .*tokenizer_config.json"),
    ],
    ids=str,
)
def test_other_normalizers_are_refused(content, settings, message, tmp_path):
    model = {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(CASES)}}
    tokenizer = {"normalizer": content, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


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
    with pytest.raises(ValueError, match="a tensor ln_f.bias .* left are ln_f.offset"):
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
    with pytest.raises(ValueError, match="Expected a tensor a .* left are none"):
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


def write_index(directory):
    index = {"weight_map": {"a.weight": "model.safetensors", "b.weight": "model.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def break_index(directory):
    (directory / "model.safetensors.index.json").write_text("[]")


def lose_a_shard(directory):
    index = {"weight_map": {"a.weight": "model-00001-of-00002.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "damage, message",
    [
        (break_config, "Expected JSON. Received: .*config.json"),
        (change_type, "can be converted: .*gpt2.* Received: model_type='gpt_neox'"),
        (remove_config, "Received: .*config.json: No such file"),
        (remove_weights, "Received: .*model.safetensors: No such file"),
        (damage_weights, "Expected a safetensors file. Received: "),
        (write_index, "without a.weight, b.weight"),
        (break_index, "Expected a JSON object with weight_map"),
        (lose_a_shard, "Received: .*model-00001-of-00002.safetensors: No such file"),
    ],
)
def test_damaged_directories(directory, damage, message):
    damage(directory)
    with pytest.raises(ValueError, match=message):
        from_hugging_face(directory)


@pytest.mark.parametrize("library", ["safetensors", "tokenizers"])
def test_a_library_that_is_not_installed(directory, sentence_pairs, library, monkeypatch):
    byte_level_bpe(directory / "tokenizer.json", sentence_pairs)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=rf"no {library}. Install .*\[convert\]"):
        from_hugging_face(directory)
