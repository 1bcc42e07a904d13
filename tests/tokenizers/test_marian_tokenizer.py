"""SentencePiece with a vocabulary of its own: tags, unknown pieces, sampling, files.

`tests/convert` compares ids with those of `transformers`.
"""

import base64
import copy
import json
import pickle

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer import tokenizers
from keras_transformer.tokenizers import MarianTokenizer
from tests.tokenizers.conftest import foreign_model

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.fixture(scope="module")
def model(sentences):
    return foreign_model(sentences)


@pytest.fixture(scope="module")
def processor(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@pytest.fixture(scope="module")
def tokenizer(model, processor):
    """Its vocabulary is in another order, has a tag and a character, and lacks one piece."""
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    pieces = [piece for piece in reversed(pieces) if piece != "▁dog"]
    return MarianTokenizer.from_parts([*SPECIAL, ">>deu<<", "世", *pieces], model)


def pieces_of(tokenizer, text):
    (row,) = tokenizer.encode([text]).to_list()
    return tokenizer.to_pieces(row)


def test_pieces_are_those_of_the_model_with_the_ids_of_the_vocabulary(
    tokenizer, processor, sentences
):
    rows = tokenizer.encode(sentences).to_list()
    texts = [text.decode() for text in tokenizer.decode(tokenizer.encode(sentences)).numpy()]
    for sentence, row, text in zip(sentences, rows, texts, strict=True):
        pieces = processor.encode(sentence, out_type=str)
        assert text == sentence.replace(" dog", "") if "▁dog" in pieces else text == sentence
        assert tokenizer.to_pieces(row) == ["<unk>" if p == "▁dog" else p for p in pieces]
        assert all(i > 3 or i == 1 for i in row)


def test_a_tag_at_the_beginning_is_one_token(tokenizer):
    assert pieces_of(tokenizer, ">>deu<< A cat.") == [">>deu<<", *pieces_of(tokenizer, "A cat.")]
    assert pieces_of(tokenizer, ">>fra<< A cat.") == ["<unk>", *pieces_of(tokenizer, "A cat.")]
    assert ">>deu<<" not in pieces_of(tokenizer, "A >>deu<< cat.")
    assert pieces_of(tokenizer, ">>deu<<") == [">>deu<<"]
    assert pieces_of(tokenizer, "") == []


def test_a_copy_has_no_tag(tokenizer):
    texts = [">>deu<< \u754c", ">>deu<< ", ">>fra<< \u754c", ">>deu<< A cat."]
    is_copied, copies = tokenizer.copies(texts, tokenizer.encode_truncated(texts, 9)[0])
    assert is_copied.numpy().tolist() == [True, True, True, False]
    assert [text.decode() for text in copies.numpy()[:3]] == ["\u754c", "", texts[2]]


def test_a_character_that_only_the_vocabulary_has_is_known(tokenizer):
    assert pieces_of(tokenizer, "世")[-1] == "世"
    assert pieces_of(tokenizer, "界")[-1] == "<unk>"


def test_special_tokens_are_left_out_of_a_text_and_are_not_read_from_one(tokenizer):
    known = tokenizer.encode(["A cat."]).to_list()[0]
    (text,) = tokenizer.decode([[2, 1, *known, 1, 0, 3, *known]]).numpy()
    assert text == b"A cat."
    for special in SPECIAL:
        ids = tokenizer.encode([special]).to_list()[0]
        assert {0, 2, 3}.isdisjoint(ids)


def test_it_is_saved_copied_and_used_in_a_graph(tokenizer, sentences, tmp_path):
    tokenizer.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.marian.json"]
    expected = tokenizer.encode(sentences).to_list()
    for other in (
        tokenizers.load(tmp_path),
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert type(other) is MarianTokenizer
        assert other.serialized == tokenizer.serialized and other.pieces == tokenizer.pieces
        assert other.encode(sentences).to_list() == expected
    module = tf.Module()
    module.tokenizer = tokenizer.graph
    module.encode = tf.function(
        lambda texts: tokenizer.encode_padded(texts, 5)[0],
        [tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    keras.utils.set_random_seed(1)  # clears TensorFlow's cache of kernels
    loaded = tf.saved_model.load(tmp_path / "saved")
    texts = tf.constant(sentences)
    np.testing.assert_array_equal(loaded.encode(texts), tokenizer.encode_padded(texts, 5)[0])


def test_sampling_is_drawn_by_seed_and_keeps_the_tag(tokenizer):
    sentence = "The woman in the green coat is waiting for the bus."
    rows = list(tokenizer.encode_sampled([sentence, f">>deu<< {sentence}"] * 4, 0.1, seed=1))
    assert len({tuple(row) for row in rows}) > 3
    for plain, tagged in zip(rows[::2], rows[1::2], strict=True):
        assert tokenizer.to_pieces(tagged)[0] == ">>deu<<"
        for row in (plain, tagged):
            assert tokenizer.decode([row]).numpy()[0].decode().endswith(sentence)
    with pytest.raises(ValueError, match="Received: sampling=2"):
        tokenizer.encode_sampled([sentence], 2, seed=1)


@pytest.fixture(scope="module")
def with_added(tokenizer, model):
    added = {"<a>": False, "<a>b": True, "世": False, "\n(": False}
    return MarianTokenizer.from_parts([*tokenizer.pieces, "<a>", "<a>b", "\n("], model, added)


def test_added_tokens_are_whole_and_the_text_between_them_is_split_by_itself(
    with_added, tokenizer, tmp_path
):
    a, b, c = (with_added.vocab_size - i for i in (3, 2, 1))
    cat, tag, world = tokenizer.encode(["A cat.", ">>deu<<", "世"]).to_list()
    texts = ["A cat.<a>A cat.", "<a>b<a>>>deu<<A cat.", "\n(世世", "", "A cat."]
    expected = [[*cat, a, *cat], [b, a, *tag, *cat], [c, *world[1:], *world[1:]], [], cat]
    for each in (with_added, pickle.loads(pickle.dumps(with_added))):
        assert each.encode(texts).to_list() == expected
        assert list(each.added_tokens) == list(with_added.added_tokens)
    graph = tf.function(with_added.encode, [tf.TensorSpec([None], tf.string)], autograph=False)
    assert graph(tf.constant(texts)).to_list() == expected
    assert with_added.encode(tf.constant([], tf.string)).to_list() == []
    assert with_added.decode([expected[1]]).numpy()[0] == b"<a>>>deu<< A cat."
    assert MarianTokenizer(tokenizer.serialized).serialized == tokenizer.serialized


def test_sampling_keeps_added_tokens_and_draws_each_sentence_by_itself(with_added):
    sentence = "The woman in the green coat <a> is waiting<a>b for the bus."
    texts = [">>deu<<" + sentence] * 8
    rows = list(with_added.encode_sampled(texts, 0.1, seed=1))
    assert len({tuple(row) for row in rows}) > 3
    (plain,) = with_added.decode(with_added.encode(texts[:1])).numpy()
    for row in rows:
        assert [with_added.pieces[i] for i in row].count("<a>") == 1
        assert with_added.decode([row]).numpy()[0] == plain
    others = [sentence if i == 3 else "<a>" * i for i in range(8)]
    alone = list(with_added.encode_sampled(others, 0.1, seed=1))[3]
    assert alone == rows[3][1:]


def test_what_is_no_tokenizer_is_refused(model, sentences):
    for content in (b"", b"[]", b"{}", json.dumps({"pieces": 3, "model": ""}).encode()):
        with pytest.raises(ValueError, match="Expected a vocabulary and a SentencePiece model"):
            MarianTokenizer(content)
    with pytest.raises(ValueError, match="Received: 6 tokens, 5 of them different"):
        MarianTokenizer.from_parts([*SPECIAL, "a", "a"], model)
    for unknown in ("b", "<unk>", ""):
        with pytest.raises(ValueError, match=f"that the vocabulary has. Received: '{unknown}'"):
            MarianTokenizer.from_parts([*SPECIAL, "a"], model, {"a": True, unknown: True})
    with pytest.raises(ValueError, match="Received: 4 tokens"):
        MarianTokenizer.from_parts(SPECIAL, model)
    for no_model in (b"no model", b""):
        with pytest.raises(ValueError, match="Expected a SentencePiece model"):
            MarianTokenizer.from_parts([*SPECIAL, "a"], no_model)
    with pytest.raises(ValueError, match="byte_fallback"):
        model = foreign_model(sentences, vocab_size=400, byte_fallback=True, hard_vocab_limit=False)
        MarianTokenizer.from_parts([*SPECIAL, "a"], model)
    damaged = {"pieces": [*SPECIAL, "a"], "model": base64.b64encode(b"")[:-1].decode() + "!"}
    with pytest.raises(ValueError, match="something else"):
        MarianTokenizer(json.dumps(damaged).encode())
