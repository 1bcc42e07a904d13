"""A search in a graph, for groups of sentences of like length.

Shapes: B batch (sentences), S source length, K hypotheses of each, L maximum output length; B' and
S' are those of a group.
"""

import tensorflow as tf

from keras_transformer.decoding.hypotheses import SearchResult

MAX_PADDING = 3
"""Maximum ratio of the longest to the shortest sentence in a group. With a smaller ratio, groups
of ordinary text are too small to be fast."""

MAX_TOGETHER = 2**14
"""Maximum source ids in a group, including padding, which limits the memory of a search."""


def search_by_length(search, source_ids, num_hypotheses, max_length, is_searched=None):
    """Returns the result of a search for groups of like length, the longest first.

    In the encoder and in every attention to the source, padding costs as much as tokens do.

    Args:
        search: function of ids `(B', S')` and of the numbers of their rows `(B',)` that returns a
            `SearchResult` with K hypotheses of at most L tokens.
        source_ids: `(B, S)` int32, each ended by the end token, padded with 0.
        num_hypotheses: K.
        max_length: L, an int scalar.
        is_searched: bool `(B,)`, the rows to search for, the others have zeros; None: all.
    """
    num_sentences = tf.shape(source_ids)[0]
    lengths = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32)

    def any_left(rows, *_):
        return tf.size(rows) > 0

    def search_longest(rows, *results):
        longest = tf.reduce_max(tf.gather(lengths, rows))
        in_group = MAX_PADDING * tf.gather(lengths, rows) >= longest
        in_group &= tf.cumsum(tf.cast(in_group, tf.int32)) <= tf.maximum(1, MAX_TOGETHER // longest)
        group = tf.boolean_mask(rows, in_group)
        found = search(tf.gather(source_ids, group)[:, :longest], group)
        missing = max_length - tf.shape(found.ids)[2]
        found = found._replace(ids=tf.pad(found.ids, [[0, 0], [0, 0], [0, missing]]))
        results = [
            tf.tensor_scatter_nd_update(result, group[:, None], group_result)
            for result, group_result in zip(results, found, strict=True)
        ]
        return (tf.boolean_mask(rows, ~in_group), *results)

    each = [num_sentences, num_hypotheses]
    results = SearchResult(
        ids=tf.zeros([*each, max_length], tf.int32),
        scores=tf.zeros(each),
        lengths=tf.zeros(each, tf.int32),
        finished=tf.zeros(each, tf.bool),
    )
    rows = tf.range(num_sentences)
    if is_searched is not None:
        rows = tf.boolean_mask(rows, is_searched)
    _, *results = tf.while_loop(
        any_left,
        search_longest,
        (rows, *results),
        shape_invariants=(tf.TensorShape([None]), *(result.shape for result in results)),
    )
    return SearchResult(*results)
