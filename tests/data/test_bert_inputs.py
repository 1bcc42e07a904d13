"""Texts and pairs of texts as the input of BERT."""

import pytest
import tensorflow as tf

from keras_transformer.data import bert_inputs


def test_texts(tokenizer):
    texts = ["A dog runs.", "", "A cat sleeps."]
    first, empty, third = tokenizer.encode(texts).to_list()
    inputs = bert_inputs(tokenizer, texts)
    assert empty == [] and inputs["ids"].dtype == tf.int32
    found = tf.RaggedTensor.from_tensor(inputs["ids"], padding=0).to_list()
    assert found == [[2, *first, 3], [2, 3], [2, *third, 3]]
    assert not inputs["segment_ids"].numpy().any()
    cut = bert_inputs(tokenizer, texts, max_length=5)["ids"].numpy().tolist()
    assert cut == [[2, *first[:3], 3], [2, 3, 0, 0, 0], [2, *third[:3], 3]]


def test_pairs_in_a_pipeline(tokenizer):
    pairs = [("A dog runs.", "A cat sleeps."), ("Water!", "Where is the bus?"), ("", "Water!")]
    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*pairs, strict=True))))
    dataset = dataset.batch(3).map(lambda a, b: bert_inputs(tokenizer, a, b, max_length=12))
    (inputs,) = dataset
    assert inputs["ids"].shape == inputs["segment_ids"].shape == (3, 12)
    for ids, segments, pair in zip(inputs["ids"], inputs["segment_ids"], pairs, strict=True):
        first, second = tokenizer.encode(list(pair)).to_list()
        left = [2, *first[:4], 3]
        right = [*second[: 11 - len(left)], 3]
        padding = [0] * (12 - len(left) - len(right))
        assert ids.numpy().tolist() == left + right + padding
        assert segments.numpy().tolist() == [0] * len(left) + [1] * len(right) + padding


def test_bad_input(tokenizer):
    with pytest.raises(ValueError, match="Expected a max_length above 3"):
        bert_inputs(tokenizer, ["a"], ["b"], max_length=3)
    with pytest.raises(ValueError, match=r"shape \(B,\)"):
        bert_inputs(tokenizer, "a")
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many first as second texts"):
        bert_inputs(tokenizer, ["a", "b"], ["c"])


def test_an_empty_batch_is_as_wide_as_a_model_needs(tokenizer):
    empty = tf.zeros([0], tf.string)
    for inputs in (bert_inputs(tokenizer, empty), bert_inputs(tokenizer, empty, empty)):
        assert inputs["ids"].shape == inputs["segment_ids"].shape == (0, 1)


def test_a_pair_fills_the_row_whichever_text_is_longer(tokenizer):
    short, long = "Water!", "The woman in the green coat is waiting for the bus."
    for pair in ((short, long), (long, short), ("", long), (long, long)):
        first, second = tokenizer.encode(list(pair)).to_list()
        (ids,) = bert_inputs(tokenizer, [pair[0]], [pair[1]], max_length=15)["ids"].numpy().tolist()
        first = first[:6]
        assert [i for i in ids if i] == [2, *first, 3, *second[: 12 - len(first)], 3]
