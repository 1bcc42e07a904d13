"""The encoder block against NumPy, whole."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import EncoderBlock
from keras_transformer.layers.nested import nested_layers

B, S, D, H, F = 2, 7, 12, 3, 17


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(B, S, D)).astype("float32")


def real_positions():
    real = np.ones((B, S), bool)
    real[1, 4:] = False
    return real


@pytest.mark.parametrize("normalize_first", [False, True])
def test_equals_numpy(x, reference, randomize, normalize_first):
    block = EncoderBlock(H, F, dropout=0.0, normalize_first=normalize_first)
    block(x)
    randomize(block)
    real = real_positions()
    output, weights = block(x, padding_mask=real, return_attention_weights=True, training=True)

    mask = np.broadcast_to(real[:, None], (B, S, S))
    expected_weights = None

    def self_attention(x):
        nonlocal expected_weights
        context, expected_weights = reference.multi_head(block.self_attention, x, x, x, mask)
        return context

    expected = reference.residual(block.self_attention_residual, x, self_attention)
    expected = reference.residual(
        block.feed_forward_residual,
        expected,
        lambda x: reference.feed_forward(block.feed_forward, x),
    )
    np.testing.assert_allclose(ops.convert_to_numpy(output), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ops.convert_to_numpy(weights), expected_weights, atol=1e-5)
    alone = ops.convert_to_numpy(block(x, padding_mask=real))
    np.testing.assert_allclose(alone, ops.convert_to_numpy(output), rtol=1e-6, atol=1e-6)


def test_number_of_parameters(x):
    block = EncoderBlock(H, F)
    block(x)
    assert block.count_params() == 4 * (D * D + D) + 2 * D * F + F + D + 2 * 2 * D


@pytest.mark.parametrize("normalize_first", [False, True])
def test_nothing_leaks_from_padding(x, normalize_first):
    block = EncoderBlock(H, F, normalize_first=normalize_first)
    real = real_positions()
    before = ops.convert_to_numpy(block(x, padding_mask=real))
    x[~real] = np.random.default_rng(2).normal(size=(3, D)) * 1e9
    after = ops.convert_to_numpy(block(x, padding_mask=real))
    np.testing.assert_allclose(after[real], before[real], rtol=1e-5, atol=1e-5)


def test_errors():
    with pytest.raises(ValueError, match="Received: d_model=10, num_heads=3"):
        EncoderBlock(3, F)(np.zeros((1, 2, 10)))
    with pytest.raises(ValueError, match="Received: ff_dim=0"):
        EncoderBlock(3, 0)
    with pytest.raises(ValueError, match="Received: rate=1.5"):
        EncoderBlock(3, F, dropout=1.5)


def test_the_arguments_reach_the_parts():
    block = EncoderBlock(
        H, F, 0.2, normalize_first=True, activation="gelu", rotary=True, dtype="mixed_bfloat16"
    )
    block.build((None, None, D))
    assert block.feed_forward.activation is keras.activations.gelu
    assert (block.feed_forward.ff_dim, block.self_attention.num_heads) == (F, H)
    assert block.self_attention.rotary
    for part in ("self_attention", "feed_forward"):
        residual = getattr(block, f"{part}_residual")
        assert residual.normalize_first and residual.output_dropout.rate == 0.2
    policies = {layer.dtype_policy.name for layer in nested_layers(block)}
    assert policies == {"mixed_bfloat16"}
