"""The feed-forward network against its equation."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import FeedForward


def test_equals_the_equation(reference, randomize):
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    layer = FeedForward(ff_dim=11)
    layer(x)
    assert layer.count_params() == 6 * 11 + 11 + 11 * 6 + 6
    randomize(layer)
    output = ops.convert_to_numpy(layer(x))
    np.testing.assert_allclose(output, reference.feed_forward(layer, x), rtol=1e-5, atol=1e-5)
    one = ops.convert_to_numpy(layer(x[:, 3:4]))  # position-wise
    np.testing.assert_allclose(one, output[:, 3:4], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", keras.activations.tanh])
def test_another_activation(reference, randomize, activation):
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    layer = FeedForward(11, activation=activation)
    layer(x)
    randomize(layer)
    expected = reference.dense(layer.outer, np.tanh(reference.dense(layer.inner, x)))
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, rtol=1e-5, atol=1e-5)
    copy = FeedForward.from_config(layer.get_config())
    assert copy.activation is keras.activations.tanh and copy.ff_dim == 11


def test_the_approximation_of_gelu_in_gpt_2(reference, randomize):
    x = np.random.default_rng(1).normal(scale=2.0, size=(2, 5, 6)).astype("float32")
    layer = FeedForward(11, activation="gelu_tanh")
    layer(x)
    randomize(layer)
    inner = reference.dense(layer.inner, x)
    inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
    expected = reference.dense(layer.outer, inner)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, rtol=1e-5, atol=1e-5)
    assert layer.get_config()["activation"] == "gelu_tanh"
    copy = FeedForward.from_config(layer.get_config())
    assert copy.activation is layer.activation


def test_the_approximation_of_gelu_in_marian():
    x = np.linspace(-4, 4, 2001).astype("float32")
    layer = FeedForward(11, activation="gelu_sigmoid")
    found = ops.convert_to_numpy(layer.activation(ops.convert_to_tensor(x)))
    np.testing.assert_allclose(found, x / (1 + np.exp(-1.702 * x)), rtol=1e-5, atol=1e-6)
    exact = ops.convert_to_numpy(keras.activations.gelu(x, approximate=False))
    assert 0.019 < np.abs(found - exact).max() < 0.021
    copy = FeedForward.from_config(layer.get_config())
    assert layer.get_config()["activation"] == "gelu_sigmoid"
    assert copy.activation is layer.activation


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="gelu_sigmoid or .* Received: activation='gelo'"):
        FeedForward(11, activation="gelo")


def test_a_size_below_one_is_refused():
    with pytest.raises(ValueError, match="Received: ff_dim=0"):
        FeedForward(0)
