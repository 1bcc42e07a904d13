"""What layers and models share: what is shared is saved once, and nothing is quantized."""

import inspect
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers
from keras_transformer.layers import Decoder, Encoder, RnnDecoder, RnnEncoder, TokenEmbedding
from keras_transformer.models import (
    Bert,
    BertClassifier,
    BertTokenClassifier,
    ImageCaptioner,
    Transformer,
)

V, D = 19, 12
STACK = dict(num_layers=1, num_heads=3, ff_dim=17, positions=None)
MESSAGE = "computes in floating point and cannot be quantized. Received: mode='int8'"


def translation_model():
    embedding = TokenEmbedding(V, D)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    x = Encoder(embedding, **STACK)(source)
    x = Decoder(embedding, **STACK)(target, x)
    return keras.Model([source, target], embedding.project(x))


def recurrent_model():
    embedding = TokenEmbedding(V, D)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    x, state = RnnEncoder(embedding, 1, 7)(source, return_state=True)
    x = RnnDecoder(embedding, 1, 7)(target, x, encoder_state=state)
    return keras.Model([source, target], embedding.project(x))


def two_classifiers():
    bert = Bert(V, num_layers=1, d_model=D, ff_dim=17, num_heads=3, max_length=9)
    ids, others = (keras.Input((None,), dtype="int32") for _ in range(2))
    of_texts, of_tokens = BertClassifier(bert, 5), BertTokenClassifier(bert, 4)
    return keras.Model([ids, others], [of_texts(ids), of_tokens(others)])


def two_captioners():
    decoder = Decoder(TokenEmbedding(V, D), **STACK)
    sizes = dict(image_size=4, num_channels=1, num_convolutions=1, d_model=D, num_heads=3)
    images, ids = keras.Input((4, 4, 1)), keras.Input((None,), dtype="int32")
    models = [
        ImageCaptioner(V, **sizes, features="convolutional", decoder=decoder) for _ in range(2)
    ]
    inputs = {"images": images, "target_ids": ids}
    return keras.Model([images, ids], [model(inputs) for model in models])


def assert_same_outputs(model, other, inputs):
    outputs = (keras.tree.flatten(each(inputs)) for each in (model, other))
    for one, two in zip(*outputs, strict=True):
        one, two = map(ops.convert_to_numpy, (one, two))
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "make", [translation_model, recurrent_model, two_classifiers, two_captioners]
)
def test_what_is_shared_is_saved_and_loaded_once(make, tmp_path):
    model = make()
    rng = np.random.default_rng(5)
    inputs = [
        rng.integers(4, V, size=(2, 5)).astype("int32")
        if "int" in x.dtype
        else rng.normal(size=(2, *x.shape[1:])).astype("float32")
        for x in model.inputs
    ]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.count_params() == model.count_params()

    # one weight for all that share it
    place = next(i for i, weight in enumerate(model.weights) if "embeddings" in weight.path)
    for weights in (model.weights, loaded.weights):
        weights[place].assign(weights[place] * 2.0)
    assert_same_outputs(loaded, model, inputs)


# === `quantize` is refused in one line, and leaves what it was called on ===


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
