"""The words of translations in a graph, as `translation.explanation` has them.

Shapes: B batch (texts), T target length, S source length, W words of a translation, V words of a
source.
"""

import tensorflow as tf

from keras_transformer.decoding.prefixes import SPACE
from keras_transformer.special_ids import END_ID, PAD_ID, UNKNOWN_ID
from keras_transformer.translation.explanation import UNKNOWN


def words_of(surfaces, ids):
    """Returns the words of ids `(B, T)` as strings `(B, W)`, padded with "", and their tokens.

    Args:
        surfaces: strings, see `Tokenizer.surfaces`.
        ids: int32, each row ended by the end token and padded with 0.
    Returns:
        `(words, tokens)`; tokens: float32 `(B, T, W)`, 1 where a token is one of a word.
    """
    is_token = (ids != PAD_ID) & (ids != END_ID)
    is_known = is_token & (ids < tf.size(surfaces))
    parts = tf.where(is_known, tf.gather(surfaces, tf.where(is_known, ids, 0)), b"")
    parts = tf.where(ids == UNKNOWN_ID, UNKNOWN, parts)
    count = tf.cumsum(tf.cast(is_token, tf.int32), axis=1)
    begins = is_token & ((tf.strings.substr(parts, 0, 1) == SPACE) | (count == 1))
    number = tf.where(is_token, tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1, -1)
    num_rows, num_words = tf.shape(ids)[0], tf.reduce_max(tf.pad(number, [[0, 1], [0, 0]])) + 1
    places = number + num_words * tf.range(num_rows)[:, None]
    places = tf.where(is_token, places, num_rows * num_words)
    words = tf.strings.unsorted_segment_join(parts, places, num_rows * num_words + 1)[:-1]
    words = tf.strings.unicode_transcode(words, "UTF-8", "UTF-8", errors="replace")
    words = tf.reshape(tf.strings.strip(words), [num_rows, num_words])
    return words, tf.one_hot(number, num_words)


def explain(source, target, log_probs, weights):
    """Returns what `explain_tokens` returns, for a batch: a dict of tensors.

    Args:
        source, target: pairs of a tokenizer's surfaces and ids `(B, S)` and `(B, T)`.
        log_probs: `(B, T)`.
        weights: `(B, T, S)`; None: unknown.
    Returns:
        source_words `(B, V)`, words `(B, W)`, padded with ""; word_scores `(B, W)`; alignment
        `(B, W)` int32: the number of a word of the source, -1 where there is none; attention
        `(B, W, V)`, all 0 if it is unknown; token_alignment `(B, T)` int32, as alignment.
    """
    source_words, source_tokens = words_of(*source)
    words, tokens = words_of(*target)
    scores = tf.einsum("bt,btw->bw", log_probs, tokens)
    is_token, is_source = (tf.reduce_any(each > 0, axis=2) for each in (tokens, source_tokens))
    if weights is None:
        weights = tf.zeros([tf.shape(words)[0], tf.shape(tokens)[1], tf.shape(source_tokens)[1]])
        is_source = tf.zeros_like(is_source)
    means = tokens / tf.maximum(tf.reduce_sum(tokens, axis=1, keepdims=True), 1.0)
    attention = tf.einsum("bts,btw,bsv->bwv", weights, means, source_tokens)
    has_attention = tf.reduce_any(attention > 0, axis=2)
    alignment = tf.where(has_attention, tf.argmax(attention, axis=2, output_type=tf.int32), -1)
    looks = tf.where(is_source[:, None], weights, -1.0)
    is_aligned = is_token & tf.reduce_any(is_source, axis=1, keepdims=True)
    token_alignment = tf.where(is_aligned, tf.argmax(looks, axis=2, output_type=tf.int32), -1)
    found = source_words, words, scores, alignment, attention, token_alignment
    names = "source_words", "words", "word_scores", "alignment", "attention", "token_alignment"
    return dict(zip(names, found, strict=True))
