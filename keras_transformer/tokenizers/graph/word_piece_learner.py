"""Learns a WordPiece vocabulary, by tensorflow-text."""

import numpy as np
import tensorflow as tf
from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

CHUNK = 4096  # sentences per call of the word splitter


def learn(texts, vocab_size, special_tokens, slack, lowest_only=False):
    """Returns the tokens that TensorFlow's learner finds, the special ones first.

    Args:
        texts: list of bytes, with a space between two words.
        special_tokens: list of str.
        slack: share of `vocab_size` by which the vocabulary may be smaller.
        lowest_only: whether to take every token that occurs, without searching for the minimum
            count that leaves about `vocab_size` tokens.
    """

    def chunks():
        for start in range(0, len(texts), CHUNK):
            yield np.array(texts[start : start + CHUNK], object)

    return bert_vocab_from_dataset.bert_vocab_from_dataset(
        tf.data.Dataset.from_generator(chunks, output_signature=tf.TensorSpec([None], tf.string)),
        vocab_size,
        special_tokens,
        learn_params={
            "lower_thresh": 1,
            "slack_ratio": slack,
            **({"upper_thresh": 1} if lowest_only else {}),
        },
    )
