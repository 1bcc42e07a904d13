"""Every public layer within a functional model: saved, loaded, equal."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers

IDS = keras.KerasTensor((None, None), dtype="int32")
X = keras.KerasTensor((None, None, 12))
MEMORY = keras.KerasTensor((None, None, 12))
HEADS = keras.KerasTensor((None, None, 3, 11))

# class name: constructor arguments, none at its default, and what the layer is called on
LAYERS = {
    "Attention": (dict(score="additive", units=7), [X, MEMORY]),
    "BlockAttention": (dict(block_size=2, alibi=True), [HEADS, HEADS, HEADS]),
    "DecoderBlock": (dict(num_heads=3, ff_dim=17, dropout=0.2, normalize_first=True,
                          activation="gelu", rotary=True), [X, MEMORY]),
    "Dense": (dict(units=7, activation="gelu"), [X]),
    "Dropout": (dict(rate=0.3, seed=5), [X]),
    "EluFeatures": (dict(), [HEADS]),
    "EncoderBlock": (dict(num_heads=3, ff_dim=17, dropout=0.2, normalize_first=True,
                          activation="gelu", rotary=True), [X]),
    "FeedForward": (dict(ff_dim=17, activation="gelu"), [X]),
    "HeadwiseDense": (dict(num_heads=3, head_dim=5, use_bias=False), [X]),
    "LayerNormalization": (dict(epsilon=0.01), [X]),
    "LearnedPositions": (dict(max_length=23, combine="concatenate", width=5), [X]),
    "LinearAttention": (dict(chunk_size=3), [HEADS, HEADS, HEADS]),
    "LocalAttention": (dict(window=2, alibi=True), [HEADS, HEADS, HEADS]),
    "MultiHeadAttention": (dict(num_heads=3, head_dim=11, use_bias=False, value_dim=5,
                                output_dim=8, sliced=True), [X, MEMORY]),
    "MultiHeadAttention, rotary": (dict(num_heads=3, head_dim=4, rotary=True), [X]),
    "PositiveRandomFeatures": (dict(num_features=7, seed=3), [HEADS]),
    "Residual": (dict(dropout=0.2, normalize_first=True), [X, X]),
    "ScaledDotProductAttention": (dict(alibi=True), [HEADS, HEADS, HEADS]),
    "SinusoidalPositions": (dict(layout="concatenated", base=500.0, combine="concatenate",
                                 width=6), [X]),
    "StridedAttention": (dict(stride=2, alibi=True), [HEADS, HEADS, HEADS]),
    "TokenEmbedding": (dict(vocab_size=19, d_model=12), [IDS]),
}  # fmt: skip


WRAPPED = {"attention", "cross_attention", "feature_map"}
"""Arguments that are layers, which have tests of their own below."""


def values(tensor, seed):
    """A batch of 2, of length 5, for a symbolic tensor."""
    rng = np.random.default_rng(seed)
    shape = (2, 5, *tensor.shape[2:])
    if tensor.dtype == "int32":
        return rng.integers(0, 19, size=shape).astype("int32")
    return rng.normal(size=shape).astype("float32")


def test_no_public_layer_is_left_out():
    classes = {name for name in layers.__all__ if inspect.isclass(getattr(layers, name))}
    assert classes == {name.partition(",")[0] for name in LAYERS}


def class_of(name):
    return getattr(layers, name.partition(",")[0])


def own_arguments(layer_class):
    """The names of a constructor's arguments that are not Keras's own."""
    parameters = inspect.signature(layer_class.__init__).parameters.values()
    names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    for base in layer_class.__mro__:
        if base.__module__.startswith("keras."):
            names -= inspect.signature(base.__init__).parameters.keys()
    return names


def test_no_argument_is_left_out():
    for class_name in {name.partition(",")[0] for name in LAYERS}:
        variants = [name for name in LAYERS if name.partition(",")[0] == class_name]
        given = {argument for name in variants for argument in LAYERS[name][0]}
        assert own_arguments(getattr(layers, class_name)) <= given | WRAPPED, class_name


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_save_load_equal(name, dtype, tmp_path, randomize):
    arguments, tensors = LAYERS[name]
    layer = class_of(name)(**arguments, dtype=dtype, name="tested")
    given = [keras.Input(tensor.shape[1:], dtype=tensor.dtype) for tensor in tensors]
    model = keras.Model(given, layer(*given))
    randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")

    copy = loaded.get_layer("tested")
    assert type(copy) is type(layer) and copy.dtype_policy.name == dtype
    for argument, value in arguments.items():
        if argument == "activation":
            value, found = (keras.activations.get(x) for x in (value, copy.activation))
        else:
            found = getattr(copy, argument)
        assert found == value, argument
    batch = [values(tensor, seed) for seed, tensor in enumerate(tensors)]
    before, after = model(batch), loaded(batch)
    precise = dtype == "float32" or name in ("EluFeatures", "PositiveRandomFeatures")
    assert ops.dtype(after) == ("float32" if precise else "bfloat16")
    before, after = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (before, after))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)
    for weight, other in zip(layer.weights, copy.weights, strict=True):
        assert weight.path.split("/")[1:] == other.path.split("/")[1:]


@pytest.mark.parametrize("name", LAYERS)
def test_a_config_makes_the_same_layer(name):
    arguments, _ = LAYERS[name]
    config = class_of(name)(**arguments, name="tested").get_config()
    copy = class_of(name).from_config(config)
    assert copy.get_config() == config


@pytest.mark.parametrize(
    "inner",
    [layers.LocalAttention(window=2, alibi=True), layers.LinearAttention(chunk_size=3)],
    ids=lambda layer: type(layer).__name__,
)
def test_what_heads_wrap_is_saved_with_them(inner, tmp_path, randomize):
    given = keras.Input((None, 12))
    layer = layers.MultiHeadAttention(num_heads=3, attention=inner, name="tested")
    model = keras.Model(given, layer(given, causal=True))
    randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    copy = loaded.get_layer("tested").attention
    assert type(copy) is type(inner)
    for argument in ("window", "alibi", "chunk_size"):
        assert getattr(copy, argument, None) == getattr(inner, argument, None)
    batch = values(X, 1)
    before, after = (ops.convert_to_numpy(m(batch)) for m in (model, loaded))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)


def test_what_blocks_and_linear_attention_wrap_is_in_their_config():
    self_attention, cross_attention = (
        layers.LocalAttention(window=2),
        layers.LinearAttention(layers.PositiveRandomFeatures(num_features=5), chunk_size=3),
    )
    decoder = layers.DecoderBlock(3, 17, attention=self_attention, cross_attention=cross_attention)
    encoder = layers.EncoderBlock(3, 17, attention=self_attention)
    for block in (decoder, encoder):
        copy = type(block).from_config(block.get_config())
        assert type(copy.self_attention.attention) is layers.LocalAttention
        assert copy.self_attention.attention.window == 2
        assert copy.get_config() == block.get_config()
    copy = layers.DecoderBlock.from_config(decoder.get_config()).cross_attention.attention
    assert (copy.chunk_size, copy.feature_map.num_features) == (3, 5)
