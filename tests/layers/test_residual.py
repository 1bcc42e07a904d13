"""Residual connections, both orders of the normalization, against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Residual


@pytest.mark.parametrize("normalize_first", [False, True])
def test_equals_numpy(reference, randomize, normalize_first):
    x = np.random.default_rng(1).normal(2.0, 3.0, size=(2, 5, 7)).astype("float32")
    layer = Residual(dropout=0.5, normalize_first=normalize_first)
    layer.build(x.shape)
    randomize(layer)

    output = ops.convert_to_numpy(layer(x, ops.square(layer.normalize_input(x))))
    normalized = reference.normalization(layer.normalization, x)
    if normalize_first:
        expected = x + normalized**2
    else:
        expected = reference.normalization(layer.normalization, x + x**2)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_dropout_acts_on_the_sublayer_alone(normalize_first):
    x = np.random.default_rng(1).normal(size=(3, 5, 64)).astype("float32")
    layer = Residual(dropout=0.5, normalize_first=normalize_first)
    output = ops.convert_to_numpy(layer(x, 10.0 * np.ones_like(x), training=True))
    if normalize_first:
        added = output - x
        assert np.all(np.isclose(added, 0.0, atol=1e-4) | np.isclose(added, 20.0, atol=1e-4))
        assert 0.4 < np.mean(added > 10) < 0.6
    else:
        np.testing.assert_allclose(output.mean(axis=-1), 0.0, atol=1e-5)
        np.testing.assert_allclose(output.std(axis=-1), 1.0, atol=1e-3)


def test_nothing_is_dropped_outside_of_training():
    x = np.random.default_rng(1).normal(size=(3, 5, 64)).astype("float32")
    layer = Residual(dropout=0.9, normalize_first=True)
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(x, x)), x + x)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_in_a_functional_model(normalize_first, tmp_path, randomize):
    given = keras.Input((None, 7))
    layer = Residual(0.1, normalize_first)
    dense = keras.layers.Dense(7)
    model = keras.Model(given, layer(given, dense(layer.normalize_input(given))))
    assert len(model.weights) == 4  # the dense layer's and one normalization's
    randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == 4
    x = np.random.default_rng(1).normal(size=(2, 5, 7)).astype("float32")
    expected = ops.convert_to_numpy(layer(x, dense(layer.normalize_input(x))))
    np.testing.assert_allclose(ops.convert_to_numpy(loaded(x)), expected, rtol=1e-6, atol=1e-6)
