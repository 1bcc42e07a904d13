"""Blocks that Keras rematerializes learn what other blocks learn."""

import contextlib

import keras
import numpy as np
from keras.src.backend import set_keras_mask

from keras_transformer.layers import EncoderBlock
from keras_transformer.layers.rematerialization import of_blocks
from keras_transformer.models import Transformer
from keras_transformer.training.losses import TokenCrossEntropy

RATES = {"dropout": 0.3, "attention_dropout": 0.2, "ff_dropout": 0.2}
SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "ff_dim": 12}


def after_two_steps(scope):
    """The losses of two steps, and all variables after them, the states of dropout included."""
    keras.utils.set_random_seed(3)
    with scope:
        model = Transformer(30, **SIZES, **RATES)
    model.build()
    ids = np.random.default_rng(0).integers(4, 30, (3, 5)).astype("int32")
    ids[1:, 3:] = 0  # padding
    model.compile("sgd", TokenCrossEntropy(), run_eagerly=keras.backend.backend() != "jax")
    inputs = {"source_ids": ids, "target_ids": ids[::-1]}
    losses = [float(model.train_on_batch(inputs, ids)) for _ in range(2)]
    return losses, [np.array(variable) for variable in model.variables]


def test_losses_weights_and_dropout_are_those_of_other_blocks(monkeypatch):
    expected, others = after_two_steps(contextlib.nullcontext())
    remat, functions = keras.remat, []
    monkeypatch.setattr(keras, "remat", lambda f: functions.append(f) or remat(f))
    losses, variables = after_two_steps(of_blocks())
    assert len(functions) >= 2  # of the encoder and of the decoder, and again if not compiled
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for found, other in zip(variables, others, strict=True):
        np.testing.assert_allclose(found, other, atol=1e-6)


def test_masks_that_keras_has_attached_count():
    outputs = []
    for scope in (contextlib.nullcontext(), of_blocks()):
        keras.utils.set_random_seed(3)
        with scope:
            block = EncoderBlock(num_heads=2, ff_dim=12, name="block_0")
        x = keras.random.normal((2, 5, 8), seed=4)
        plain = block(x)
        set_keras_mask(x, keras.ops.arange(5)[None] < keras.ops.convert_to_tensor([[5], [3]]))
        outputs.append(keras.ops.convert_to_numpy(block(x)))
        assert np.abs(outputs[-1] - keras.ops.convert_to_numpy(plain)).max() > 1e-3
    np.testing.assert_allclose(*outputs, rtol=1e-6)
