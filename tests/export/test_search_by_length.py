"""A search by groups of like length, with a search that says what it was given."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.hypotheses import SearchResult
from keras_transformer.export.search_by_length import search_by_length

N, L = 2, 9


def searched(lengths, width):
    """Returns the result and the shape of each group; sentence i is made of i + 1 alone."""
    shapes = []

    def search(ids, _):
        shapes.append(tuple(ids.shape))
        firsts = tf.repeat(ids[:, :1], N, axis=1)  # tells whose answer it is
        found = tf.repeat(firsts[..., None], min(ids.shape[1], L), axis=2)
        scores = tf.cast(firsts, tf.float32) / 2
        return SearchResult(found, scores, firsts * 3, firsts % 2 == 0)

    ids = np.zeros((len(lengths), width), "int32")
    for i, length in enumerate(lengths):
        ids[i, :length] = i + 1
    return search_by_length(search, tf.constant(ids), N, L), shapes


@pytest.mark.parametrize(
    "lengths, shapes",
    [
        ([4, 2, 6, 3], [(4, 6)]),
        ([2, 3, 7, 1, 2], [(2, 7), (3, 2)]),  # in groups, and each answer in its own place
        ([1, 30, 2, 10, 9, 3], [(2, 30), (2, 9), (2, 2)]),
        ([1], [(1, 1)]),
        ([], []),
    ],
)
def test_a_group_holds_no_sentence_below_a_third_of_its_longest(lengths, shapes):
    found, seen = searched(lengths, width=31)
    assert seen == shapes
    ids = np.arange(1, len(lengths) + 1)[:, None].repeat(N, 1)
    np.testing.assert_array_equal(found.ids[..., :1], ids[..., None])
    np.testing.assert_array_equal(found.scores, ids / 2)
    np.testing.assert_array_equal(found.lengths, ids * 3)
    np.testing.assert_array_equal(found.finished, ids % 2 == 0)
    assert found.ids.shape == (len(lengths), N, L)
