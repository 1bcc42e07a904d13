"""Examples made in the graph: of sentence pairs, and the input of BERT."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import (
    ParallelCorpus,
    TranslationBatches,
    bert_inputs,
    training_example,
)
from keras_transformer.tokenizers import SentencePieceTokenizer


def test_equal_to_translation_batches(sentence_pairs, tokenizer):
    corpus = ParallelCorpus.from_pairs(sentence_pairs[:7])
    (expected,) = TranslationBatches(corpus, tokenizer, shuffle=False).dataset(repeat=False)
    dataset = tf.data.Dataset.from_tensor_slices((corpus.source, corpus.target)).batch(7)
    (example,) = dataset.map(lambda s, t: training_example(s, t, tokenizer))

    def by_row(parts):
        inputs, labels, weights = parts
        arrays = (inputs["source_ids"], inputs["target_ids"], labels, weights)
        return sorted(np.concatenate(row).tolist() for row in zip(*arrays, strict=True))

    assert by_row(example) == by_row(expected)


def test_cut_at_the_longest_length_with_its_end(tokenizer):
    texts = tf.constant(["A dog runs in the park.", "Water!"])
    inputs, labels, weights = training_example(texts, texts, tokenizer, max_length=5)
    assert inputs["source_ids"].shape[1] == labels.shape[1] == 5
    assert labels[0, -1] == 3 and inputs["target_ids"][0, 0] == 2
    np.testing.assert_array_equal(inputs["target_ids"][0, 1:], labels[0, :-1])
    np.testing.assert_allclose(np.sum(weights), 1.0, rtol=1e-6)


def test_a_target_tokenizer_of_its_own(tokenizer, corpus):
    target_tokenizer = SentencePieceTokenizer.train(corpus.target, vocab_size=101)
    texts = tf.constant(corpus.source[:3]), tf.constant(corpus.target[:3])
    inputs, labels, _ = training_example(*texts, tokenizer, target_tokenizer)
    assert tokenizer.decode(inputs["source_ids"]).numpy().tolist() == texts[0].numpy().tolist()
    assert target_tokenizer.decode(labels).numpy().tolist() == texts[1].numpy().tolist()


def test_an_empty_batch_has_no_weight(tokenizer):
    empty = tf.zeros([0], tf.string)
    inputs, labels, weights = training_example(empty, empty, tokenizer)
    assert inputs["target_ids"].shape == labels.shape == weights.shape == (0, 1)


def test_what_gives_no_example_is_refused(tokenizer):
    texts = tf.constant(["A dog.", "A cat."])
    with pytest.raises(ValueError, match="max_length of at least 2.* Received: max_length=1"):
        training_example(texts, texts, tokenizer, max_length=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many sources as targets"):
        training_example(texts, texts[:1], tokenizer)


def test_texts_for_bert(tokenizer):
    texts = ["A dog runs.", "", "A cat sleeps."]
    first, empty, third = tokenizer.encode(texts).to_list()
    inputs = bert_inputs(tokenizer, texts)
    assert empty == [] and inputs["ids"].dtype == tf.int32
    found = tf.RaggedTensor.from_tensor(inputs["ids"], padding=0).to_list()
    assert found == [[2, *first, 3], [2, 3], [2, *third, 3]]
    assert not inputs["segment_ids"].numpy().any()
    cut = bert_inputs(tokenizer, texts, max_length=5)["ids"].numpy().tolist()
    assert cut == [[2, *first[:3], 3], [2, 3, 0, 0, 0], [2, *third[:3], 3]]


def test_pairs_for_bert_in_a_pipeline(tokenizer):
    pairs = [("A dog runs.", "A cat sleeps."), ("Water!", "Where is the bus?"), ("", "Water!")]
    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*pairs, strict=True))))
    plain = tf.autograph.experimental.do_not_convert  # which takes seconds, and changes nothing
    dataset = dataset.batch(3).map(plain(lambda a, b: bert_inputs(tokenizer, a, b, max_length=12)))
    (inputs,) = dataset
    assert inputs["ids"].shape == inputs["segment_ids"].shape == (3, 12)
    for ids, segments, pair in zip(inputs["ids"], inputs["segment_ids"], pairs, strict=True):
        first, second = tokenizer.encode(list(pair)).to_list()
        left = [2, *first[:4], 3]
        right = [*second[: 11 - len(left)], 3]
        padding = [0] * (12 - len(left) - len(right))
        assert ids.numpy().tolist() == left + right + padding
        assert segments.numpy().tolist() == [0] * len(left) + [1] * len(right) + padding


def test_bad_input_of_bert(tokenizer):
    with pytest.raises(ValueError, match="Expected a max_length above 3"):
        bert_inputs(tokenizer, ["a"], ["b"], max_length=3)
    with pytest.raises(ValueError, match=r"shape \(B,\)"):
        bert_inputs(tokenizer, "a")
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many first as second texts"):
        bert_inputs(tokenizer, ["a", "b"], ["c"])


def test_an_empty_batch_for_bert_is_as_wide_as_a_model_needs(tokenizer):
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
