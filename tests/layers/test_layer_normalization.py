"""Layer normalization against NumPy and against Keras's own: values, gradients, dtypes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import LayerNormalization

B, T, D = 2, 5, 7


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(2.0, 3.0, size=(B, T, D)).astype("float32")


@pytest.fixture
def pair(x, randomize):
    """Makes this layer and Keras's own with the same weights."""

    def make(**arguments):
        layers = [
            LayerNormalization(**arguments),
            keras.layers.LayerNormalization(**{"epsilon": 1e-6, **arguments}),
        ]
        for layer in layers:
            layer.build(x.shape)
            randomize(layer)
        return layers

    return make


def test_equals_numpy(x, reference, randomize):
    layer = LayerNormalization()
    layer(x)
    randomize(layer)
    x[0, 0] = 4.0  # without variance
    for shape in ((B, T, D), (B * T, D), (B, 1, T, D), (0, D)):
        part = x.reshape(-1, D)[: np.prod(shape[:-1], dtype=int)].reshape(shape)
        expected = reference.normalization(layer, part.astype("float64"))
        found = ops.convert_to_numpy(layer(part))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_equals_keras(x, pair, epsilon):
    layer, theirs = pair(epsilon=epsilon)
    found, expected = (ops.convert_to_numpy(one(x)) for one in (layer, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert [w.path.split("/")[-1] for w in layer.weights] == ["gamma", "beta"]


def test_large_means_cost_no_more_precision_than_they_must(x, pair):
    """(x - mean) first, its square second: E[x^2] - E[x]^2 would have no digit left here."""
    layer, _ = pair()
    shifted = x + np.float32(2**14)
    expected = ops.convert_to_numpy(layer(shifted - np.float32(2**14)))
    np.testing.assert_allclose(ops.convert_to_numpy(layer(shifted)), expected, atol=1e-2)


def test_mixed_precision_is_close_and_computed_in_float32(x, pair):
    layer, theirs = pair(dtype="mixed_bfloat16")
    x = ops.cast(x, "bfloat16")
    outputs = [one(x) for one in (layer, theirs)]
    assert {ops.dtype(output) for output in outputs} == {"bfloat16"}
    exact, _ = pair()
    expected = ops.convert_to_numpy(exact(ops.cast(x, "float32")))
    for output in outputs:
        output = ops.convert_to_numpy(ops.cast(output, "float32"))
        # half a unit in the last place of bfloat16: nothing but the result was rounded
        np.testing.assert_allclose(output, expected, rtol=2**-8, atol=1e-5)


def test_the_gradient_equals_keras(x, pair, gradient):
    layer, theirs = pair()
    found, expected = (
        gradient(lambda x, one=one: ops.square(one(x)), x) for one in (layer, theirs)
    )
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("index", [0, 1])
def test_the_gradients_of_its_weights_equal_keras(x, pair, gradient, index):
    found, expected = (
        gradient(lambda weight, one=one: squares(one, weight, index, x), one.get_weights()[index])
        for one in pair()
    )
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def squares(layer, weight, index, x):
    """The squares of the output with `weight` in the place of one of the layer's own."""
    weights = [ops.convert_to_tensor(weight) for weight in layer.get_weights()]
    weights[index] = weight
    output, _ = layer.stateless_call(weights, [], ops.convert_to_tensor(x))
    return ops.square(output)


def test_a_saved_keras_layer_gives_its_weights(x, pair, tmp_path):
    """Files that were saved before the layer had a call of its own can still be loaded."""
    layer, theirs = pair()
    models = [keras.Sequential([keras.Input((T, D)), one]) for one in (layer, theirs)]
    models[1].layers[0].gamma.assign(np.arange(D))
    models[1].save_weights(tmp_path / "model.weights.h5")
    models[0].load_weights(tmp_path / "model.weights.h5")
    found, expected = (ops.convert_to_numpy(model(x)) for model in models)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("argument", [dict(center=False), dict(scale=False), dict(axis=1)])
def test_what_it_does_not_compute_is_refused(argument):
    name, value = next(iter(argument.items()))
    with pytest.raises(
        ValueError, match=f"The last axis is normalized.* Received: .*{name}={value}"
    ):
        LayerNormalization(**argument)


def test_normalization_without_a_mean_is_refused():
    with (
        pytest.warns(UserWarning, match="rms_scaling"),
        pytest.raises(ValueError, match="Received: .*rms_scaling=True"),
    ):
        LayerNormalization(rms_scaling=True)
