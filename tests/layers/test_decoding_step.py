"""The weights that the steps of decoding read."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import LayerNormalization
from keras_transformer.layers.decoding_step import (
    add_projection,
    dense_weights,
    project_rows,
    standardized,
)
from keras_transformer.layers.dense import Dense

R, D, WIDTHS = 5, 7, (3, 11)  # rows, width of the input, widths of two layers


@pytest.fixture
def x():
    return ops.convert_to_tensor(np.random.default_rng(1).normal(size=(R, D)).astype("float32"))


def layers(randomize, **arguments):
    result = [Dense(width, **arguments) for width in WIDTHS]
    for layer in result:
        layer.build((None, D))
        randomize(layer)
    return result


def assert_equal(actual, expected):
    np.testing.assert_allclose(
        ops.convert_to_numpy(actual), ops.convert_to_numpy(expected), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("use_bias", [True, False])
def test_layers_side_by_side_give_what_each_gives(randomize, x, use_bias):
    both = layers(randomize, use_bias=use_bias)
    weights = dense_weights(both)
    assert ("bias" in weights) == use_bias
    expected = ops.concatenate([layer(x) for layer in both], axis=-1)
    assert_equal(project_rows(x, weights), expected)
    other = ops.ones((R, sum(WIDTHS)))
    assert_equal(add_projection(other, x, weights), other + expected)


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_normalization_becomes_part_of_the_weights(randomize, x, use_bias):
    both = layers(randomize, use_bias=use_bias)
    norm = LayerNormalization(epsilon=0.1)
    norm.build((None, D))
    randomize(norm)
    centered = x - ops.mean(x, axis=1, keepdims=True)
    expected = ops.concatenate([layer(norm(x)) for layer in both], axis=-1)
    assert_equal(project_rows(standardized(centered, 0.1), dense_weights(both, norm)), expected)


def test_the_mean_of_a_centered_output_is_zero(randomize, x):
    layer = layers(randomize)[1]
    expected = layer(x)
    output = project_rows(x, dense_weights([layer], centered=True))
    assert_equal(output, expected - ops.mean(expected, axis=1, keepdims=True))


def test_the_weights_have_the_compute_dtype(randomize):
    weights = dense_weights(layers(randomize, dtype="mixed_bfloat16"), centered=True)
    assert {ops.dtype(weight) for weight in weights.values()} == {"bfloat16"}
