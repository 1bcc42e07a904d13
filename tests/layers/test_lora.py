"""Adapters of low rank: what a projection computes with them, what learns, and what is saved."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers
from keras_transformer.models import RnnSeq2Seq, Transformer
from keras_transformer.runs.model_state import merge_adapter, path_within, write_adapter

INPUTS = {"source_ids": np.array([[5, 7, 3]]), "target_ids": np.array([[2, 9]])}


@pytest.fixture
def model():
    """A Transformer with adapters of rank 3, none of which is zero."""
    model = Transformer(19, num_layers=1, d_model=8, ff_dim=5, num_heads=2, dropout=0.0)
    model.build()
    model.enable_lora(3)
    rng = np.random.default_rng(1)
    for factor in model.trainable_variables:
        factor.assign(rng.normal(size=factor.shape))
    return model


def test_a_projection_adds_the_product_of_its_factors():
    block = layers.EncoderBlock(num_heads=2, ff_dim=7)
    x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    before = ops.convert_to_numpy(block(x))
    block.enable_lora(3, target_layer_names=["value", "inner"])
    np.testing.assert_allclose(ops.convert_to_numpy(block(x)), before, rtol=1e-6)  # B is zero
    assert len({variable.path for variable in block.trainable_variables}) == 4
    for layer in (block.self_attention.value_projection, block.feed_forward.inner):
        w, b, first, second = layer.get_weights()
        assert first.shape == (8, 3) and first.any() and not second.any()
        second += np.arange(second.size).reshape(second.shape) / 9
        layer.set_weights([w, b, first, second])
        expected = layer.activation(x @ (w + first @ second) + b)
        for each in (layer(x), ops.reshape(layer(x.reshape(10, 8)), (2, 5, -1))):
            found = ops.convert_to_numpy(each)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_adapters_alone_learn(model):
    before = {weight.path: np.array(weight) for weight in model.weights}
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    model.fit(INPUTS, np.ones((1, 2, 19)), verbose=0)
    for weight in model.weights:
        is_factor = weight.name.startswith("lora")
        assert is_factor != np.array_equal(before[weight.path], np.array(weight)), weight.path
    names = {path.split("/")[-2] for path in before if "lora" in path}
    assert names == {"query", "value"}
    assert len(model.optimizer.variables) == 2  # its step and its rate


def test_adapters_of_a_frozen_part_learn_once_the_model_is_compiled_again():
    model = Transformer(19, num_layers=1, d_model=8, ff_dim=5, num_heads=2)
    model.encoder.trainable = False
    model.compile("sgd", "mse")
    model.enable_lora(2)
    assert len(model.encoder.trainable_variables) == 4
    with pytest.raises(ValueError, match="call `compile"):
        model.fit(INPUTS, np.ones((1, 2, 19)), verbose=0)


def test_what_is_saved_is_a_plain_model_with_merged_kernels(model, tmp_path):
    expected = ops.convert_to_numpy(model(INPUTS))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(loaded(INPUTS)), expected)
    assert len(loaded.trainable_variables) == len(loaded.weights) == len(model.weights) - 12

    # of weights that are loaded into it, a model with adapters computes the same, and can learn
    model.save_weights(tmp_path / "model.weights.h5")
    model.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(ops.convert_to_numpy(model(INPUTS)), expected, rtol=1e-5, atol=1e-5)
    first, second = (np.array(factor) for factor in model.trainable_variables[:2])
    assert first.any() and not second.any()


def test_a_model_is_exported_without_adapters(model):
    """Whose weights would be others than those of a model that is made from its config."""
    from keras_transformer.export.exportable import in_float32  # needs TensorFlow

    plain = in_float32(model)
    assert len(plain.weights) == len(model.weights) - 12
    expected = ops.convert_to_numpy(model(INPUTS))
    np.testing.assert_allclose(ops.convert_to_numpy(plain(INPUTS)), expected, rtol=1e-5, atol=1e-5)


def test_an_adapter_file_is_merged_into_the_weights_that_it_adapts(model, tmp_path):
    write_adapter(model, tmp_path / "adapter.npz")
    base = Transformer(19, num_layers=1, d_model=8, ff_dim=5, num_heads=2, dropout=0.0)
    base.build()
    adapted = {path_within(model, weight): weight for weight in model.weights}
    for weight in base.weights:
        weight.assign(adapted[path_within(base, weight)])
    merge_adapter(base, tmp_path / "adapter.npz")
    found, expected = (ops.convert_to_numpy(each(INPUTS)) for each in (base, model))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_merged_kernels_are_not_rounded_to_the_compute_dtype(tmp_path):
    layer = layers.Dense(4, dtype="mixed_bfloat16")
    model = keras.Sequential([keras.Input((3,)), layer])
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.full((2, 4), 1 / 3))
    w, _, first, second = layer.get_weights()
    model.save_weights(tmp_path / "model.weights.h5")
    model.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(layer.get_weights()[0], w + first @ second, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "make, arguments, error",
    [
        (lambda: layers.FeedForward(5), (2, ["inner"]), "Received: feed_forward.*, built=False"),
        (lambda: RnnSeq2Seq(19, d_model=8, units=6), (2,), "projections of the names query, value"),
        (lambda: layers.EncoderBlock(2, 5), (0,), "rank must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_adapted_is_refused(make, arguments, error):
    with pytest.raises(ValueError, match=error):
        make().enable_lora(*arguments)


def test_adapters_are_made_once(model):
    with pytest.raises(ValueError, match="Expected a layer without adapters"):
        model.encoder.enable_lora(2)
