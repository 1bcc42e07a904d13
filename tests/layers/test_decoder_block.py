"""The decoder block against NumPy, whole, and step by step."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import DecoderBlock
from keras_transformer.layers.nested import nested_layers

B, T, S, D, H, F = 2, 5, 7, 12, 3, 17


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")


@pytest.fixture
def encoder_output():
    return np.random.default_rng(2).normal(size=(B, S, D)).astype("float32")


@pytest.fixture
def real():
    mask = np.ones((B, S), bool)
    mask[1, 4:] = False
    return mask


@pytest.mark.parametrize("normalize_first", [False, True])
def test_equals_numpy(x, encoder_output, real, reference, randomize, normalize_first):
    block = DecoderBlock(H, F, dropout=0.0, normalize_first=normalize_first)
    block(x, encoder_output)
    randomize(block)
    output, *weights = block(x, encoder_output, real, return_attention_weights=True, training=True)

    expected_weights = []

    def self_attention(x):
        causal = np.broadcast_to(np.tri(T, dtype=bool), (B, T, T))
        context, weights = reference.multi_head(block.self_attention, x, x, x, causal)
        expected_weights.append(weights)
        return context

    def cross_attention(x):
        mask = np.broadcast_to(real[:, None], (B, T, S))
        context, weights = reference.multi_head(
            block.cross_attention, x, encoder_output, encoder_output, mask
        )
        expected_weights.append(weights)
        return context

    expected = reference.residual(block.self_attention_residual, x, self_attention)
    expected = reference.residual(block.cross_attention_residual, expected, cross_attention)
    expected = reference.residual(
        block.feed_forward_residual,
        expected,
        lambda x: reference.feed_forward(block.feed_forward, x),
    )
    np.testing.assert_allclose(ops.convert_to_numpy(output), expected, rtol=1e-4, atol=1e-4)
    for actual, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(actual), expected, atol=1e-5)
    alone = ops.convert_to_numpy(block(x, encoder_output, source_padding_mask=real))
    np.testing.assert_allclose(alone, ops.convert_to_numpy(output), rtol=1e-6, atol=1e-6)


def test_the_source_may_have_another_width(x):
    encoder_output = np.zeros((B, S, 19), "float32")
    block = DecoderBlock(H, F)
    assert tuple(block(x, encoder_output).shape) == (B, T, D)
    attention = 4 * (D * D + D)
    feed_forward = 2 * D * F + F + D
    wider_source = 2 * (19 - D) * D
    assert block.count_params() == 2 * attention + feed_forward + 3 * 2 * D + wider_source


@pytest.mark.parametrize("normalize_first", [False, True])
def test_the_future_does_not_change_the_past(x, encoder_output, normalize_first):
    block = DecoderBlock(H, F, normalize_first=normalize_first)
    before = ops.convert_to_numpy(block(x, encoder_output))
    x[:, 3:] += np.random.default_rng(3).normal(size=(B, 2, D)) * 1e3
    after = ops.convert_to_numpy(block(x, encoder_output))
    np.testing.assert_allclose(after[:, :3], before[:, :3], rtol=1e-5, atol=1e-5)
    assert np.all(np.abs(after - before)[:, 3:].max(axis=-1) > 0.1)


def test_nothing_leaks_from_the_padding_of_the_source(x, encoder_output, real):
    block = DecoderBlock(H, F)
    before = ops.convert_to_numpy(block(x, encoder_output, real))
    encoder_output[~real] = 1e9
    after = ops.convert_to_numpy(block(x, encoder_output, real))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_steps_equal_the_whole_pass(encoder_output, real, randomize, normalize_first):
    num_hypotheses = 3
    rows = B * num_hypotheses
    x = np.random.default_rng(4).normal(size=(rows, T, D)).astype("float32")
    block = DecoderBlock(H, F, normalize_first=normalize_first)
    repeated = np.repeat(encoder_output, num_hypotheses, axis=0)
    repeated_mask = np.repeat(real, num_hypotheses, axis=0)
    block(x, repeated)
    randomize(block)
    whole = ops.convert_to_numpy(block(x, repeated, repeated_mask))

    weights, cache = block.decoding_weights(), block.self_attention.start_cache(rows, T + 2)
    memory = block.start_memory(ops.convert_to_tensor(encoder_output), ops.convert_to_tensor(real))
    assert {part.shape[0] for part in memory.values()} == {B}
    assert {part.shape[0] for part in cache.values()} == {rows}
    for step in range(T):
        output, cache = block.decode_step(
            block.ready_to_decode(ops.convert_to_tensor(x[:, step])),
            block.self_attention.start_step(ops.convert_to_tensor(step, "int32"), cache),
            cache,
            memory,
            num_hypotheses,
            weights,
        )
        expected = block.ready_to_decode(ops.convert_to_tensor(whole[:, step]))
        np.testing.assert_allclose(
            ops.convert_to_numpy(output), ops.convert_to_numpy(expected), rtol=1e-4, atol=1e-4
        )


def test_the_arguments_reach_the_parts():
    block = DecoderBlock(
        H, F, 0.2, normalize_first=True, activation="gelu", rotary=True, dtype="mixed_bfloat16"
    )
    block.build((None, None, D), (None, None, D))
    assert block.feed_forward.activation is keras.activations.gelu
    assert (block.feed_forward.ff_dim, block.self_attention.num_heads) == (F, H)
    assert block.self_attention.rotary
    for part in ("self_attention", "cross_attention", "feed_forward"):
        residual = getattr(block, f"{part}_residual")
        assert residual.normalize_first and residual.output_dropout.rate == 0.2
    policies = {layer.dtype_policy.name for layer in nested_layers(block)}
    assert policies == {"mixed_bfloat16"}
