"""Examples made in the graph are those that `TranslationBatches` makes of the same pairs."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import ParallelCorpus, TranslationBatches, training_example
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
