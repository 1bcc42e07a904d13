"""Scaled dot-product attention against a loop from the paper, PyTorch's own, and its properties."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    LinearAttention,
    ScaledDotProductAttention,
    causal_mask,
    scaled_dot_product_attention,
)
from tests.layers.conftest import assert_equal, normal

B, T, S, H, K, V = 2, 5, 7, 3, 11, 13  # no two sizes equal


@pytest.fixture
def arrays():
    """Query, key and value, `(B, T, H, K)`, `(B, S, H, K)`, `(B, S, H, V)`."""
    return normal((B, T, H, K), (B, S, H, K), (B, S, H, V))


def some_mask(shape=(B, T, S)):
    """A random mask in which each query sees a key."""
    mask = np.random.default_rng(5).random(shape) < 0.5
    mask[..., 2] = True
    return mask


@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_loop(arrays, reference, masked):
    mask = some_mask() if masked else None
    context, weights = ScaledDotProductAttention()(
        *arrays, attention_mask=mask, return_attention_weights=True
    )
    assert tuple(context.shape) == (B, T, H, V) and tuple(weights.shape) == (B, H, T, S)
    for b, h in np.ndindex(B, H):
        one = [array[b, :, h] for array in arrays]
        expected = reference.attention(*one, None if mask is None else mask[b])
        assert_equal(context[b, :, h], expected[0])
        assert_equal(weights[b, h], expected[1])


def test_dropout_leaves_the_returned_weights_and_the_expectation(arrays):
    layer = ScaledDotProductAttention(dropout=0.25)
    expected, expected_weights = layer(*arrays, return_attention_weights=True)
    many = [np.tile(array, (200, 1, 1, 1)) for array in arrays]
    context, weights = layer(*many, return_attention_weights=True, training=True)
    contexts = ops.convert_to_numpy(context).reshape(200, B, T, H, V)
    assert_equal(weights, np.tile(ops.convert_to_numpy(expected_weights), (200, 1, 1, 1)))
    assert np.abs(contexts[0] - contexts[1]).max() > 0.1
    mean, deviation = np.mean(contexts, axis=0), np.std(contexts, axis=0) / 200**0.5
    assert np.all(np.abs(mean - ops.convert_to_numpy(expected)) < 5 * deviation + 1e-3)


def test_each_kind_of_mask_is_honoured(arrays, reference):
    padding, dense = some_mask((B, S)), some_mask((T, S))
    causal = np.tri(T, S, S - T, dtype=bool)
    context = ScaledDotProductAttention()(
        *arrays, padding_mask=padding, causal=True, attention_mask=dense
    )
    for b, h in np.ndindex(B, H):
        one = [array[b, :, h] for array in arrays]
        assert_equal(context[b, :, h], reference.attention(*one, padding[b] & dense & causal)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_equals_pytorch(arrays, causal):
    torch = pytest.importorskip("torch")
    query, key, value = (torch.from_numpy(array).transpose(1, 2) for array in arrays)
    if causal:
        key, value = key[:, :, :T], value[:, :, :T]
        mask = np.asarray(ops.convert_to_numpy(causal_mask(T)))
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
    else:
        mask = some_mask()
        expected = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=torch.from_numpy(mask)[:, None]
        )
    mask = np.broadcast_to(mask, (B, T, mask.shape[-1]))[:, None]
    length = mask.shape[-1]
    context, _ = scaled_dot_product_attention(
        arrays[0], arrays[1][:, :length], arrays[2][:, :length], mask
    )
    assert_equal(context, expected.transpose(1, 2).numpy())


def test_weights_are_a_distribution_over_what_is_seen(arrays):
    mask = some_mask()
    _, weights = scaled_dot_product_attention(*arrays, mask[:, None])
    assert_equal(ops.sum(weights, axis=-1), np.ones((B, H, T)))
    weights = ops.convert_to_numpy(weights)
    unseen = np.broadcast_to(~mask[:, None], weights.shape)
    assert np.all(weights[unseen] == 0) and np.all(weights[~unseen] > 0)


def test_a_row_that_sees_nothing_is_zero_and_has_finite_gradients(arrays, gradient):
    mask = some_mask()
    mask[1, 3] = False
    context, weights = scaled_dot_product_attention(*arrays, mask[:, None])
    assert np.all(ops.convert_to_numpy(context)[1, 3] == 0)
    assert np.all(ops.convert_to_numpy(weights)[1, :, 3] == 0)
    assert np.all(np.any(ops.convert_to_numpy(context)[1, [0, 1, 2, 4]] != 0, axis=-1))
    for i in range(3):

        def squares(x, i=i):
            inputs = [x if j == i else array for j, array in enumerate(arrays)]
            return ops.square(scaled_dot_product_attention(*inputs, mask[:, None])[0])

        result = gradient(squares, arrays[i])
        assert np.all(np.isfinite(result)) and np.any(result != 0)
        if i == 0:
            assert np.all(result[1, 3] == 0)


def test_nothing_leaks_from_padding(arrays):
    query, key, value = arrays
    padding_mask = np.ones((B, S), bool)
    padding_mask[0, 4:] = False
    layer = ScaledDotProductAttention()
    before = ops.convert_to_numpy(layer(query, key, value, padding_mask=padding_mask))
    key[0, 4:], value[0, 4:] = 1e9, -1e9
    assert_equal(layer(query, key, value, padding_mask=padding_mask), before)


def test_the_future_does_not_change_the_past(arrays):
    query, key, value = arrays[0], arrays[1][:, :T], arrays[2][:, :T]
    layer = ScaledDotProductAttention()
    before = ops.convert_to_numpy(layer(query, key, value, causal=True))
    key[:, 3:] += 1e3
    value[:, 3:] -= 1e3
    after = ops.convert_to_numpy(layer(query, key, value, causal=True))
    assert_equal(after[:, :3], before[:, :3])
    assert np.all(np.abs(after - before)[:, 3:].max(axis=(0, 2, 3)) > 1)


def test_large_scores_do_not_overflow(arrays):
    query, key, value = arrays
    context, weights = scaled_dot_product_attention(1e4 * query, 1e4 * key, value)
    assert np.all(np.isfinite(ops.convert_to_numpy(context)))
    assert_equal(ops.sum(weights, axis=-1), np.ones((B, H, T)))


def test_bfloat16_comes_close(arrays):
    expected = ops.convert_to_numpy(scaled_dot_product_attention(*arrays)[0])
    layer = ScaledDotProductAttention(dtype="mixed_bfloat16")
    context, weights = layer(*arrays, return_attention_weights=True)
    assert ops.dtype(context) == ops.dtype(weights) == "bfloat16"
    assert_equal(context, expected, tolerance=0.05)


@pytest.mark.parametrize("layer", [ScaledDotProductAttention, LinearAttention])
def test_shapes_that_are_none_of_heads_are_refused(layer, arrays):
    query, key, value = arrays
    with pytest.raises(ValueError, match=r"Received: \(2, 5, 11\), \(2, 7, 3, 11\)"):
        layer()(query[:, :, 0], key, value)
    with pytest.raises(ValueError, match=r"Received: \(2, 5, 3, 11\), \(2, 7, 3, 9\)"):
        layer()(query, key[..., :9], value)


class BiasedAttention(ScaledDotProductAttention):
    """A user's own layer: a key's score rises with its distance."""

    def score_bias(self, query_positions, key_positions, num_heads):
        return ops.cast(query_positions[:, None] - key_positions, "float32")


@pytest.mark.parametrize("layer_class", [ScaledDotProductAttention, BiasedAttention])
def test_steps_equal_the_whole_pass(arrays, layer_class):
    query, key, value = arrays[0], arrays[1][:, :T], arrays[2][:, :T]
    layer = layer_class()
    whole = ops.convert_to_numpy(layer(query, key, value, causal=True))
    cache = layer.start_cache(B, T + 2, H, K, V)  # longer than what will be written
    shapes = {name: tuple(part.shape) for name, part in cache.items()}
    assert shapes == {"keys": (B, H, T + 2, K), "values": (B, H, T + 2, V)}
    # what is not written yet must not be read
    cache = {name: part + 1e9 for name, part in cache.items()}
    for t in range(T):
        position = [ops.convert_to_tensor(x[:, t]) for x in (query, key, value)]
        step = layer.start_step(ops.convert_to_tensor(t, "int32"), cache)
        context, cache = layer.decode_step(*position, step, cache)
        assert_equal(context, whole[:, t])


@pytest.mark.parametrize("num_queries", [1, T])
@pytest.mark.parametrize("masked", [False, True])
def test_a_memory_gives_what_the_call_gives(arrays, num_queries, masked):
    query, key, value = arrays[0][:, :num_queries], *arrays[1:]
    real = None
    if masked:
        real = np.ones((B, S), bool)
        real[0, 4:] = False
        real[1] = False  # of nothing there is nothing to see: zeros
    layer = ScaledDotProductAttention()
    expected = ops.convert_to_numpy(layer(query, key, value, padding_mask=real))
    if masked:
        key[~real], value[~real] = 1e9, -1e9
        assert np.all(expected[1] == 0)
    memory = layer.start_memory(*map(ops.convert_to_tensor, (key, value)), padding_mask=real)
    shapes = {name: tuple(part.shape) for name, part in memory.items()}
    bias = {"score_bias": (B, 1, 1, S)} if masked else {}
    assert shapes == {"keys": (B, H, K, S), "values": (B, H, S, V), **bias}
    found = layer.attend_to_memory(ops.convert_to_tensor(query), memory)
    assert_equal(found, expected)
