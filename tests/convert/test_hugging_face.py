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
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
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
        ("added_tokens.json", '{"<new>": 99}', "or to follow them. Received: '<new>' with the id"),
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


END = "<|endoftext|>"
ADDED = [{"content": "</s>", "special": True}, {"content": "<new>", "lstrip": True}]
NAMED = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>"}
MASK = {"content": "[MASK]", "lstrip": True, "normalized": False}

# the special tokens of a vocabulary of n tokens, tokenizer_config.json, and the files beside it
GPT2_FILES = {
    "a decoder alone": ([END], lambda n: decoder(n, ADDED, eos_token="</s>"), {}),
    "a decoder and files that do not count beside it": (
        [END],
        lambda n: decoder(n, ADDED[:1]),
        {"special_tokens_map": {"eos_token": "<pad>"}, "added_tokens": {"<new>": 0}},
    ),
    "another end": ([END, "</s>"], {"eos_token": "</s>"}, {}),
    "the default is an ordinary text": ([END, "</s>"], NAMED, {}),
    "no unknown": ([END, "</s>"], {**NAMED, "unk_token": None}, {}),
    "tokens around a text": (
        [END, "</s>"],
        {"add_bos_token": True, "add_eos_token": True, "eos_token": "</s>"},
        {},
    ),
    "a start that is null": ([END], {"add_bos_token": True, "bos_token": None}, {}),
    "a new token that is named": ([END], {"pad_token": "<pad>", "my_token": "<new>"}, {}),
    "further special tokens": (
        [END],
        {"additional_special_tokens": ["<new>"], "extra_special_tokens": {"x": "</s>"}},
        {},
    ),
    "special tokens that are split": ([END], {"split_special_tokens": True}, {}),
    "older files": (
        ["</s>", "<pad>"],
        {**NAMED, "pad_token": "<pad>", "add_prefix_space": True},
        {
            "special_tokens_map": {**NAMED, "additional_special_tokens": ["<end>"]},
            "added_tokens": lambda n: {"<new>": n, "<end>": n + 1},
        },
    ),
}
BERT_FILES = {
    "a decoder alone": ([], lambda n: decoder(n, ADDED), {}),
    "other names": (["<s>", "</s>"], {"cls_token": "<s>", "sep_token": "</s>"}, {}),
    "a space before a mask": ([], {}, {"special_tokens_map": {"mask_token": MASK}}),
    "older files": ([], {}, {"added_tokens": lambda n: {"<new>": n, "</s>": n + 1}}),
}


def decoder(size, tokens, **settings):
    """Returns settings that add tokens to a vocabulary of this size."""
    ids = range(size, size + len(tokens))
    return {"added_tokens_decoder": dict(zip(map(str, ids), tokens, strict=True)), **settings}


def write_json(directory, size, files):
    for name, content in files.items():
        content = content(size) if callable(content) else content
        (directory / f"{name}.json").write_text(json.dumps(content))


def assert_same(ours, theirs):
    for text in (TEXT, f"dog</s>A{END}", "The <new> dog", "<new><end>", " a <pad> [MASK] b", ""):
        for pair in ([], ["A <new>cat"]):
            assert ours.encode(text, *pair).ids == theirs(text, *pair)["input_ids"], text
        ids = theirs(text)["input_ids"]
        if "<end>" not in text:  # of which versions 4 and 5 differ
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("special", "config", "files"), GPT2_FILES.values(), ids=GPT2_FILES)
def test_what_lies_beside_the_files_of_gpt2_is_read_as_in_transformers(
    special, config, files, as_json, tmp_path, sentence_pairs
):
    transformers = pytest.importorskip("transformers", reason="needs the extra test-backends")
    trained = tokenizers.ByteLevelBPETokenizer()
    texts = [text for pair in sentence_pairs[:40] for text in pair]
    trained.train_from_iterator(texts, 300, show_progress=False, special_tokens=special)
    trained.save(str(tmp_path / "tokenizer.json")) if as_json else trained.save_model(str(tmp_path))
    write_json(tmp_path, trained.get_vocab_size(), {"tokenizer_config": config, **files})
    ours, theirs = read_tokenizer(tmp_path), transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    assert_same(ours, theirs)
    if "<end>" in theirs.get_vocab():
        assert ours.decode(ours.encode("<end>").ids) == ""


@pytest.mark.parametrize(("special", "config", "files"), BERT_FILES.values(), ids=BERT_FILES)
def test_what_lies_beside_the_vocabulary_of_bert_is_read_as_in_transformers(
    special, config, files, tmp_path
):
    transformers = pytest.importorskip("transformers", reason="needs the extra test-backends")
    pieces = [*CASES, *special, *"[MASK] < > new / s b a dog cat".split()]
    pieces = list(dict.fromkeys(pieces))
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    write_json(tmp_path, len(pieces), {"tokenizer_config": config, **files})
    assert_same(read_tokenizer(tmp_path), transformers.BertTokenizer.from_pretrained(tmp_path))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"<new>": 999}}, "ids in added_tokens.json .* '<new>' with the id 999"),
        (
            {"tokenizer_config": decoder(3, ADDED[:1])},
            "ids in added_tokens_decoder of tokenizer_config.json .* '</s>' with the id 3",
        ),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"x": ADDED[0]}}},
            "the id of each token in .* Received: 'x' for '</s>'",
        ),
        ({"added_tokens": {"<new>": True}}, "the id of each token in .* Received: True for"),
        ({"tokenizer_config": {"added_tokens_decoder": ADDED}}, "Received: added_tokens_decoder="),
        ({"tokenizer_config": decoder(3, [{}])}, "Received: added_tokens_decoder={}"),
        ({"tokenizer_config": {"eos_token": 3}}, "Received: eos_token=3"),
        ({"tokenizer_config": {"extra_special_tokens": "x"}}, "Received: extra_special_tokens='x'"),
        ({"special_tokens_map": {"eos_token": {"content": "a", "lstrip": 1}}}, "eos_token={"),
        (
            {"tokenizer_config": {"add_bos_token": True}},
            r"add_bos_token .* in the vocabulary. Received: <\|endoftext\|> in",
        ),
        ({"tokenizer_config": {"add_bos_token": 1}}, "Received: add_bos_token=1"),
    ],
    ids=str,
)
def test_tokens_that_cannot_be_read_are_refused(files, message, tmp_path):
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator([TEXT], 300, show_progress=False)
    trained.save_model(str(tmp_path))
    write_json(tmp_path, 0, files)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config", "special_tokens_map", "added_tokens"])
@pytest.mark.parametrize("has_decoder", [False, True])
def test_files_beside_a_tokenizer_that_cannot_be_read_are_an_error(has_decoder, name, tmp_path):
    write_word_pieces(tmp_path)
    write_json(tmp_path, 0, {"tokenizer_config": decoder(0, []) if has_decoder else {}})
    (tmp_path / f"{name}.json").unlink(missing_ok=True)
    (tmp_path / f"{name}.json").symlink_to("../blobs/missing")
    with pytest.raises(ValueError, match=f"{name}.json: a link to ../blobs/missing, which is mis"):
        read_tokenizer(tmp_path)


def test_an_end_token_that_the_tokenizer_lacks_is_refused(directory, theirs):
    """The model has a row for it, which would be left out."""
    pieces = {chr(97 + i): i for i in range(25)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(pieces, []))
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    with pytest.raises(ValueError, match="Received: eos_token_id=60, .* whose highest id is 24"):
        from_hugging_face(directory)
    write_json(directory, 25, {"tokenizer_config": {"eos_token": "</s>"}})
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "eos_token_id": 25}))
    model, tokenizer = from_hugging_face(directory)
    assert (model.vocab_size, model.end_id, tokenizer.encode("a</s>").ids) == (26, 25, [0, 25])


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
