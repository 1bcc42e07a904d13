"""Dense layers of few rows: equal to Keras's own, values and gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Dense

D, F = 5, 3


@pytest.mark.parametrize("arguments", [{}, {"use_bias": False}, {"activation": "relu"}])
@pytest.mark.parametrize("shape", [(7, D), (1, D), (0, D), (2, 7, D)])
def test_equals_keras(randomize, gradient, shape, arguments):
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    layer, keras_layer = Dense(F, **arguments), keras.layers.Dense(F, **arguments)
    for each in (layer, keras_layer):
        each.build(shape)
    randomize(layer)
    keras_layer.set_weights(layer.get_weights())
    expected = ops.convert_to_numpy(keras_layer(x))
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, rtol=1e-6, atol=1e-6)
    if x.size:
        found, expected = (
            gradient(lambda x, each=each: ops.square(each(x)), x) for each in (layer, keras_layer)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_bfloat16():
    layer = Dense(F, dtype="mixed_bfloat16")
    assert ops.dtype(layer(np.ones((2, D), "float32"))) == "bfloat16"
