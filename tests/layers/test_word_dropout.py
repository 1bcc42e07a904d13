"""Dropout of whole tokens: all of a vector or nothing, the share, the expectation."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import WordDropout

X = np.random.default_rng(1).uniform(1, 2, size=(101, 103, 7)).astype("float32")


def dropped(layer):
    return ops.convert_to_numpy(layer(X, training=True))


def test_inference_is_the_identity():
    np.testing.assert_array_equal(ops.convert_to_numpy(WordDropout(0.5)(X)), X)
    np.testing.assert_array_equal(dropped(WordDropout(0.0)), X)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_token_is_dropped_as_a_whole_or_scaled_up(rate):
    output = dropped(WordDropout(rate))
    zero = output == 0
    np.testing.assert_array_equal(zero.all(axis=-1), zero.any(axis=-1))
    deviation = np.sqrt(rate * (1 - rate) / (101 * 103))
    assert abs(zero[..., 0].mean() - rate) < 1 / 512 + 5 * deviation
    kept = ~zero[..., 0]
    scale = output[kept] / X[kept]
    np.testing.assert_allclose(scale, scale[0, 0], rtol=1e-5)
    assert abs(scale[0, 0] - 1 / (1 - rate)) < 0.01 * scale[0, 0]


def test_tokens_are_drawn_one_by_one_and_anew_each_time():
    layer = WordDropout(0.5, seed=5)
    first, second = ((dropped(layer) == 0)[..., 0] for _ in range(2))
    for axis in range(2):
        neighbours = np.diff(first.astype(int), axis=axis) == 0
        assert abs(neighbours.mean() - 0.5) < 0.03
    assert 0.4 < np.mean(first != second) < 0.6
    np.testing.assert_array_equal((dropped(WordDropout(0.5, seed=5)) == 0)[..., 0], first)


def test_a_mask_of_keras_is_handed_on():
    ids = np.array([[4, 7, 0], [5, 0, 0]])
    x = keras.layers.Embedding(9, 4, mask_zero=True)(ids)
    output = WordDropout(0.5)(x, training=True)
    np.testing.assert_array_equal(ops.convert_to_numpy(output._keras_mask), ids != 0)
