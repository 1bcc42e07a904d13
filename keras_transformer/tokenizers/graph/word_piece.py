"""The graph side of `WordPieceTokenizer`, by tensorflow-text."""

import tensorflow as tf
import tensorflow_text

from keras_transformer.special_ids import UNKNOWN_ID
from keras_transformer.tokenizers import patterns
from keras_transformer.tokenizers.graph.base import GraphTokenizer


class WordPieceGraph(GraphTokenizer):
    """WordPiece as operations of TensorFlow.

    Args:
        pieces: tuple of str, the vocabulary.
        max_characters: those of the longest word that is split.
        suffix_indicator: what tokens within a word begin with.
        joins: patterns and what replaces them where tokens become a text.
        is_uncased: whether accents and case are removed.
    """

    def __init__(self, pieces, max_characters, suffix_indicator, joins, is_uncased):
        super().__init__(name="word_piece_tokenizer")
        self._pieces, self._joins = pieces, joins
        self._max_characters, self._is_uncased = max_characters, is_uncased
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(pieces), tf.range(len(pieces), dtype=tf.int64)
            ),
            default_value=UNKNOWN_ID,
        )
        self._ops = tensorflow_text.WordpieceTokenizer(
            table,
            suffix_indicator=suffix_indicator,
            max_bytes_per_word=4 * max_characters,
            unknown_token=pieces[UNKNOWN_ID],
        )

    def _tokenize(self, texts):
        words = self._words(texts)
        is_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > self._max_characters
        unknown = self._pieces[UNKNOWN_ID]
        words = words.with_flat_values(tf.where(is_long, unknown, words.flat_values))
        ids = self._ops.tokenize(words)  # (B, words, pieces)
        return tf.cast(ids.merge_dims(1, 2), tf.int32)

    def _words(self, texts):
        """Returns the words of strings `(B,)`, ragged `(B, None)`."""
        texts = _replaced(_replaced(texts, patterns.REMOVED, ""), patterns.SPACES, " ")
        texts = _replaced(texts, patterns.IDEOGRAPHS, r" \1 ")
        if self._is_uncased:
            texts = tensorflow_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(_replaced(texts, patterns.MARKS, ""), "Σ", "σ")
            texts = tf.strings.lower(texts, encoding="utf-8")
        words = tf.strings.split(_replaced(texts, patterns.PUNCTUATION, r" \1 "), " ")
        return tf.ragged.boolean_mask(words, words != "")

    def _detokenize(self, ids):
        pieces = tf.ragged.map_flat_values(tf.gather, tf.constant(self._pieces), ids)
        text = tf.strings.reduce_join(pieces, axis=1, separator=" ")
        for pattern, replacement in self._joins:
            text = tf.strings.regex_replace(text, pattern, replacement)
        return text


def _replaced(texts, pattern, replacement):
    """Returns texts with each character of a class of `patterns` replaced."""
    return tf.strings.regex_replace(texts, f"([{patterns.ranges(pattern)}])", replacement)
