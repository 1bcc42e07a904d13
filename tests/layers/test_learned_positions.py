"""Learned positions: a row of the table for each position."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import LearnedPositions


def test_adds_the_rows_of_the_table():
    layer = LearnedPositions(max_length=11)
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    output = ops.convert_to_numpy(layer(x))
    (table,) = layer.get_weights()
    assert table.shape == (11, 6) and np.all(table.std(axis=1) > 0)
    np.testing.assert_allclose(output, x + table[:5], rtol=1e-6)
    whole = ops.convert_to_numpy(layer(np.zeros((1, 11, 6), "float32")))
    np.testing.assert_array_equal(whole[0], table)


def test_concatenates_the_rows_of_the_table():
    layer = LearnedPositions(max_length=11, combine="concatenate", width=4)
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    output = ops.convert_to_numpy(layer(x))
    (table,) = layer.get_weights()
    assert table.shape == (11, 4) and output.shape == (2, 5, 10)
    np.testing.assert_array_equal(output, np.concatenate([x, [table[:5]] * 2], axis=-1))


def test_encode_equals_the_call():
    layer = LearnedPositions(max_length=11)
    whole = ops.convert_to_numpy(layer(np.zeros((1, 11, 6), "float32")))[0]
    for positions in ([4], [0, 10], [7, 3, 3]):
        encoding = ops.convert_to_numpy(layer.encode(ops.convert_to_tensor(positions)))
        np.testing.assert_array_equal(encoding, whole[positions])


def test_a_length_over_the_table_is_refused():
    layer = LearnedPositions(max_length=11)
    with pytest.raises(ValueError, match=r"max_length=11 .*Received: x.shape=\(1, 12, 6\)"):
        layer(np.zeros((1, 12, 6)))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="lengths unknown in a graph")
def test_a_length_known_only_when_the_graph_runs_is_held_to_the_last_row():
    import tensorflow as tf

    layer = LearnedPositions(max_length=3)
    layer.build((None, None, 2))
    function = tf.function(layer, input_signature=[tf.TensorSpec([None, None, 2])])
    output = function(tf.zeros([1, 5, 2])).numpy()[0]
    (table,) = layer.get_weights()
    np.testing.assert_array_equal(output, table[[0, 1, 2, 2, 2]])


def test_a_size_below_one_is_refused():
    with pytest.raises(ValueError, match="Received: max_length=0"):
        LearnedPositions(max_length=0)
