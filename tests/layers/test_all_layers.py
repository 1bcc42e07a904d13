"""What holds of every public layer: shapes, dtypes, masks, a training step, saving and loading."""

import functools
import inspect
import json
import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers
from tests import forked

IDS = keras.KerasTensor((None, None), dtype="int32")
X = keras.KerasTensor((None, None, 12))
MEMORY = keras.KerasTensor((None, None, 12))
GRID = keras.KerasTensor((None, 4, 5, 12))
IMAGES = keras.KerasTensor((None, 4, 8, 3))
HEADS = keras.KerasTensor((None, None, 3, 11))

STACK = dict(num_heads=3, ff_dim=17, dropout=0.2, normalize_first=True, activation="gelu",
             positions="learned", max_length=23, layer_norm_epsilon=0.01,
             attention={"name": "local", "window": 2}, attention_dropout=0.1, ff_dropout=0.15,
             word_dropout=0.05)  # fmt: skip


def embedding():
    return layers.TokenEmbedding(19, 12)


# class name: constructor arguments, none at its default, and what the layer is called on
LAYERS = {
    "Attention": (dict(score="additive", units=7, dropout=0.2), [X, MEMORY]),
    "BertEmbedding": (dict(vocab_size=19, d_model=12, max_length=23, num_segments=3,
                           layer_norm_epsilon=0.01), [IDS]),
    "BlockAttention": (dict(block_size=2, alibi=True, dropout=0.2), [HEADS, HEADS, HEADS]),
    "ConvolutionalEmbedding": (dict(image_size=(4, 8), d_model=12, num_convolutions=1), [IMAGES]),
    "Decoder": (lambda: dict(embedding=embedding(), num_layers=1, **STACK), [IDS, MEMORY]),
    "Decoder, no source": (lambda: dict(embedding=embedding(), num_layers=1, **STACK,
                                        cross_attention=None), [IDS]),
    "DecoderBlock": (dict(num_heads=3, ff_dim=17, dropout=0.2, normalize_first=True,
                          activation="gelu", rotary=True, layer_norm_epsilon=0.01,
                          ff_dropout=0.15), [X, MEMORY]),
    "DecoderBlock, no source": (dict(num_heads=3, ff_dim=17, has_cross_attention=False), [X]),
    "Dense": (dict(units=7, activation="gelu"), [X]),
    "Dropout": (dict(rate=0.3, seed=5), [X]),
    "EluFeatures": (dict(), [HEADS]),
    "Encoder": (lambda: dict(embedding=embedding(), num_layers=2, **STACK), [IDS]),
    "EncoderBlock": (dict(num_heads=3, ff_dim=17, dropout=0.2, normalize_first=True,
                          activation="gelu", rotary=True, layer_norm_epsilon=0.01,
                          ff_dropout=0.15), [X]),
    "FeedForward": (dict(ff_dim=17, activation="gelu", dropout=0.2), [X]),
    "GridPositions": (dict(rows=3, columns=2, resize=True), [GRID]),
    "HeadwiseDense": (dict(num_heads=3, head_dim=5, use_bias=False), [X]),
    "LayerNormalization": (dict(epsilon=0.01), [X]),
    "LearnedPositions": (dict(max_length=23, combine="concatenate", width=5), [X]),
    "LinearAttention": (dict(chunk_size=3), [HEADS, HEADS, HEADS]),
    "LocalAttention": (dict(window=2, alibi=True, dropout=0.2), [HEADS, HEADS, HEADS]),
    "MultiHeadAttention": (dict(num_heads=3, head_dim=11, use_bias=False, value_dim=5,
                                output_dim=8, sliced=True), [X, MEMORY]),
    "MultiHeadAttention, rotary": (dict(num_heads=3, head_dim=4, rotary=True), [X]),
    "PatchEmbedding": (dict(image_size=(6, 4), patch_size=2, d_model=12, class_token=True,
                            resize_positions=True), [IMAGES]),
    "PositiveRandomFeatures": (dict(num_features=7, seed=3), [HEADS]),
    "Residual": (dict(dropout=0.2, normalize_first=True, layer_norm_epsilon=0.01), [X, X]),
    "Residual, post-norm": (dict(dropout=0.2), [X, X]),
    "RnnDecoder": (lambda: dict(embedding=embedding(), num_layers=2, units=7, cell="lstm",
                                attention="luong", score="multiplicative", input_feeding=True,
                                dropout=0.2), [IDS, MEMORY]),
    "RnnDecoder, before the step": (lambda: dict(embedding=embedding(), units=7), [IDS, MEMORY]),
    "RnnEncoder": (lambda: dict(embedding=embedding(), num_layers=2, units=7, cell="lstm",
                                bidirectional=False, dropout=0.2), [IDS]),
    "RnnEncoder, both directions": (lambda: dict(embedding=embedding(), units=7), [IDS]),
    "ScaledDotProductAttention": (dict(alibi=True, dropout=0.2), [HEADS, HEADS, HEADS]),
    "SinusoidalPositions": (dict(layout="concatenated", base=500.0, combine="concatenate",
                                 width=6), [X]),
    "Ssru": (dict(), [X]),
    "StridedAttention": (dict(stride=2, alibi=True, dropout=0.2), [HEADS, HEADS, HEADS]),
    "TokenEmbedding": (dict(vocab_size=19, d_model=12, scale=False, stddev=0.02), [IDS]),
    "WordDropout": (dict(rate=0.3, seed=5), [X]),
}  # fmt: skip


WRAPPED = {"attention", "cross_attention", "feature_map"}
"""Arguments that are layers, which have tests of their own below."""

WITHOUT_MASKS = {"ConvolutionalEmbedding", "GridPositions", "PatchEmbedding"}
"""Images have no padding. Keras warns of a mask that ends at such a layer."""


def values(tensor, seed):
    """A batch of 2, where unknown of length 5, for a symbolic tensor."""
    rng = np.random.default_rng(seed)
    shape = (2, tensor.shape[1] or 5, *tensor.shape[2:])
    if tensor.dtype == "int32":
        return rng.integers(0, 19, size=shape).astype("int32")
    return rng.normal(size=shape).astype("float32")


def test_no_public_layer_is_left_out():
    members = {name: getattr(layers, name) for name in layers.__all__}
    classes = {name for name, member in members.items() if inspect.isclass(member)}
    classes = {name for name in classes if issubclass(members[name], keras.layers.Layer)}
    assert classes == {name.partition(",")[0] for name in LAYERS}


def class_of(name):
    return getattr(layers, name.partition(",")[0])


def arguments_of(name):
    arguments, _ = LAYERS[name]
    return arguments() if callable(arguments) else arguments


@functools.cache
def functional(name):
    """A layer and a functional model of it alone, of unknown batch and length, for all tests.

    In bfloat16: what the tests of each layer compute with NumPy, they compute in float32.
    """
    layer = class_of(name)(**arguments_of(name), dtype="mixed_bfloat16", name=name_in_model(name))
    given = [keras.Input(tensor.shape[1:], dtype=tensor.dtype) for tensor in LAYERS[name][1]]
    return layer, keras.Model(given, layer(*given))


def name_in_model(name):
    return f"tested_{list(LAYERS).index(name)}"


def batch_of(name):
    return [values(tensor, seed) for seed, tensor in enumerate(LAYERS[name][1])]


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
        given = {argument for name in variants for argument in arguments_of(name)}
        assert own_arguments(getattr(layers, class_name)) <= given | WRAPPED, class_name


@pytest.mark.parametrize("name", LAYERS)
def test_a_frozen_layer_has_nothing_to_train(name):
    """Also one that is frozen before it has weights, or that is loaded."""
    layer = class_of(name)(**arguments_of(name))
    layer.trainable = False
    for frozen in (layer, type(layer).from_config(layer.get_config())):
        frozen.build(*[tensor.shape for tensor in LAYERS[name][1]])
        assert not any(weight.trainable for weight in frozen.weights)
    assert len(layer.weights) == len(functional(name)[0].weights)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, randomize):
    """A model of all layers side by side, the file that it is saved in, and its outputs."""
    models = [functional(name)[1] for name in LAYERS]
    given = [tensor for model in models for tensor in model.inputs]
    whole = keras.Model(given, [model.output for model in models])
    randomize(whole)
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    whole.save(path)
    outputs = whole([values for name in LAYERS for values in batch_of(name)])
    return whole, path, dict(zip(LAYERS, outputs, strict=True))


def paths_within(layer, paths):
    """The paths of a layer's weights, but for what depends on who built them."""
    # an embedding that is given to a stack is built before the stack is loaded
    start = -2 if hasattr(layer, "embedding") else 1
    return [path.split("/")[start:] for path in paths]


PROGRAM = """
import json, sys
import keras_transformer, keras, numpy as np
from keras import ops
model = keras.models.load_model(sys.argv[1])
batch = np.load(sys.argv[2])
found = model([batch[name] for name in batch.files])
print(json.dumps([ops.dtype(x) for x in found]))
np.savez(sys.argv[3], *[ops.convert_to_numpy(ops.cast(x, "float32")) for x in found])
found = [layer for layer in model.layers if layer.name.startswith("tested_")]
print(json.dumps({layer.name: [
    type(layer).__name__, layer.dtype_policy.name, [weight.path for weight in layer.weights]
] for layer in found}))
"""


def test_all_are_loaded_in_a_new_process(saved, tmp_path):
    """With nothing but the import of the package, and the same numbers come out."""
    whole, path, outputs = saved
    np.savez(tmp_path / "batch.npz", *[values for name in LAYERS for values in batch_of(name)])
    files = path, tmp_path / "batch.npz", tmp_path / "outputs.npz"
    process = forked.run(["-c", PROGRAM, *files])
    assert process.returncode == 0, process.stderr
    dtypes, described = map(json.loads, process.stdout.splitlines()[-2:])
    with np.load(tmp_path / "outputs.npz") as file:
        loaded = dict(zip(LAYERS, zip(dtypes, file.values(), strict=True), strict=True))
    for name, (dtype, found) in loaded.items():
        precise = name in ("EluFeatures", "PositiveRandomFeatures")
        assert dtype == ("float32" if precise else "bfloat16")
        expected = ops.convert_to_numpy(ops.cast(outputs[name], "float32"))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6, err_msg=name)
        layer = whole.get_layer(name_in_model(name))
        class_name, policy, paths = described.pop(layer.name)
        assert (class_name, policy) == (class_of(name).__name__, "mixed_bfloat16")
        of_layer = [weight.path for weight in layer.weights]
        assert paths_within(layer, paths) == paths_within(layer, of_layer)
    assert not described


@pytest.mark.parametrize("name", LAYERS)
def test_a_config_makes_the_same_layer(name):
    config = class_of(name)(**arguments_of(name), name="tested", dtype="bfloat16").get_config()
    copy = class_of(name).from_config(config)
    assert copy.get_config() == config and copy.dtype_policy.name == "bfloat16"
    for argument, value in arguments_of(name).items():
        found = getattr(copy, argument)
        if argument == "activation":
            value, found = (keras.activations.get(x) for x in (value, found))
        if argument == "embedding":
            value, found = ((x.vocab_size, x.d_model) for x in (value, found))
        assert found == value, argument


class Widened(layers.EncoderBlock):
    """A user's own layer: an argument that it saves, one that it does not, those of its parent."""

    def __init__(self, factor, friend=None, *, dtype=None, **kwargs):
        super().__init__(ff_dim=4 * factor, dtype=dtype, **kwargs)
        self.factor = factor
        self.friend = friend

    def get_config(self):
        config = super().get_config()
        del config["ff_dim"]
        return {**config, "factor": self.factor}


def test_a_subclass_of_the_users_saves_what_it_says():
    layer = Widened(3, object(), num_heads=2, dropout=0.2, dtype="mixed_bfloat16")
    saved = keras.saving.serialize_keras_object(layer)
    copy = keras.saving.deserialize_keras_object(saved, custom_objects={"Widened": Widened})
    assert (copy.factor, copy.friend, copy.num_heads, copy.ff_dim) == (3, None, 2, 12)
    assert copy.dropout == 0.2 and copy.dtype_policy.name == "mixed_bfloat16"
    assert copy.get_config() == layer.get_config()


def test_a_configuration_with_a_wrong_value_is_refused_as_the_argument_is():
    config = layers.EncoderBlock(2, 4).get_config()
    with pytest.raises(ValueError, match="num_heads"):
        layers.EncoderBlock.from_config({**config, "num_heads": 0})


@pytest.mark.parametrize("name", LAYERS)
def test_the_shape_that_comes_out_is_known_before(name, saved):
    """Of symbolic inputs, and from the shapes alone."""
    _, _, outputs = saved
    _, model = functional(name)
    found = tuple(outputs[name].shape)
    assert len(model.output.shape) == len(found)
    for symbolic, size in zip(model.output.shape, found, strict=True):
        assert symbolic in (None, size)
    assert model.output.shape[-1] == found[-1]  # which the next layer builds on
    layer = class_of(name)(**arguments_of(name))
    assert tuple(layer.compute_output_shape(*[x.shape for x in batch_of(name)])) == found


def sublayers(layer):
    for member in vars(layer).values():
        for each in member if isinstance(member, list) else [member]:
            if isinstance(each, keras.layers.Layer):
                yield each
                yield from sublayers(each)


@pytest.mark.parametrize("name", LAYERS)
def test_sublayers_compute_in_the_dtype_of_their_layer(name):
    layer, _ = functional(name)
    given = arguments_of(name).get("embedding")  # a layer of the user's own has its own
    for sublayer in sublayers(layer):
        if type(sublayer) is not type(given):
            assert sublayer.dtype_policy.name == "mixed_bfloat16", sublayer.name
    assert {weight.dtype for weight in layer.weights} <= {"float32"}


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in WITHOUT_MASKS])
def test_a_mask_that_keras_keeps_is_handed_on(name):
    """Keras asks `supports_masking`; what layers do with a mask is in test_implicit_masks.py."""
    layer, _ = functional(name)
    assert layer.supports_masking
    mask = np.array([[True] * 3 + [False] * 2, [True] * 5])
    assert layer.compute_mask(batch_of(name)[0], mask) is mask


@pytest.mark.parametrize("name", LAYERS)
def test_a_training_step_moves_the_weights(name, randomize, run_eagerly):
    layer, model = functional(name)
    if not layer.trainable_weights or name == "Residual":  # whose weights are in normalize_input
        return
    randomize(model)
    before = [ops.convert_to_numpy(weight) for weight in layer.trainable_weights]
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
    batch = batch_of(name)
    labels = np.ones(model(batch).shape, "float32")
    assert math.isfinite(model.train_on_batch(batch, labels))
    for weight, old in zip(layer.trainable_weights, before, strict=True):
        new = ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(new)), weight.path
        # softmax takes no notice of what all keys of a query have in common
        if not weight.path.endswith("key/bias"):
            assert np.any(new != old), weight.path


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


def test_blocks_take_an_attention_by_its_name():
    local, policy = {"name": "local", "window": 2}, "mixed_bfloat16"
    decoder = layers.DecoderBlock(3, 17, attention=local, cross_attention="linear", dtype=policy)
    for block in (decoder, layers.EncoderBlock(3, 17, attention=local, dtype=policy)):
        for each in (block, type(block).from_config(block.get_config())):
            assert type(each.attention) is layers.LocalAttention and each.attention.window == 2
            assert each.attention.dtype_policy.name == policy
    assert type(decoder.cross_attention.attention) is layers.LinearAttention
    assert type(layers.MultiHeadAttention(3, attention="strided").attention).__name__ == (
        "StridedAttention"
    )
    with pytest.raises(ValueError, match="no distance .* Received: cross_attention={'name': 'loc"):
        layers.DecoderBlock(3, 17, cross_attention=local)
    with pytest.raises(ValueError, match="attention must be one of dense, .* attention='locl'"):
        layers.EncoderBlock(3, 17, attention="locl")


def test_wrappers_of_keras_take_layers():
    """A document of sentences: each sentence is encoded alone."""
    block = layers.EncoderBlock(num_heads=2, ff_dim=16)
    documents = keras.Input((3, None, 8))
    model = keras.Model(documents, keras.layers.TimeDistributed(block)(documents))
    assert model.output_shape == (None, 3, None, 8)
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 8)).astype("float32")
    found = ops.convert_to_numpy(model(x))
    for i in range(3):
        expected = ops.convert_to_numpy(block(x[:, i]))
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-5, atol=1e-6)
