"""`quantize` is refused in one line, by layers and by models, and leaves what it was called on."""

import inspect
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers
from keras_transformer.models import Transformer

MESSAGE = "computes in floating point and cannot be quantized. Received: mode='int8'"


def test_a_model_is_not_quantized():
    model = Transformer(19, num_layers=1, d_model=8, ff_dim=5, num_heads=2)
    inputs = {"source_ids": np.array([[5, 7, 3]]), "target_ids": np.array([[2, 9]])}
    before = ops.convert_to_numpy(model(inputs))
    with pytest.raises(ValueError, match=f"Transformer {MESSAGE}"):
        model.quantize("int8")
    np.testing.assert_array_equal(ops.convert_to_numpy(model(inputs)), before)


@pytest.mark.parametrize(
    "layer",
    [
        layers.EncoderBlock(2, 7),
        layers.MultiHeadAttention(2, sliced=True),
        layers.Attention("additive"),
        layers.LearnedPositions(9),
        layers.Dense(5),
    ],
    ids=lambda layer: layer.name,
)
def test_a_functional_model_with_our_layers_is_not_quantized(layer):
    """Nor is a layer of Keras before it."""
    x = keras.Input((6, 8))
    model = keras.Model(x, layer(keras.layers.Dense(8, name="first")(x)))
    with pytest.raises(ValueError, match=MESSAGE):
        model.quantize("int8")
    assert model.get_layer("first").quantization_mode is None


@pytest.mark.skipif(
    "filters" not in inspect.signature(keras.Model.quantize).parameters,
    reason="Keras 3.12 has no filters",
)
def test_filters_leave_our_layers_out():
    ids = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(9, 8, name="first")(ids)
    model = keras.Model(ids, keras.layers.Dense(3, name="last")(layers.EncoderBlock(2, 7)(x)))
    before = model.predict(np.arange(6)[None], verbose=0)
    for filters in ("inner", ["^first$", "inner"], lambda layer: True):
        with pytest.raises(ValueError, match=MESSAGE) as error:
            model.quantize("int8", filters=filters)
    assert model.get_layer("first").quantization_mode is None
    filters = re.search(r"filters=(lambda.*)\)\.$", str(error.value))[1]
    with pytest.warns(UserWarning, match="InputLayer"):  # as in any model of Keras
        model.quantize("int8", filters=eval(filters))
    assert [model.get_layer(name).quantization_mode for name in ("first", "last")] == ["int8"] * 2
    np.testing.assert_allclose(model.predict(np.arange(6)[None], verbose=0), before, atol=0.05)


def test_a_single_layer_is_not_quantized():
    layer = layers.TokenEmbedding(19, 8)
    layer.build()
    with pytest.raises(ValueError, match=f"TokenEmbedding {MESSAGE}"):
        layer.quantize("int8")
