"""Rotary positions against the rotation of each pair, and what they are for."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import MultiHeadAttention, rotate
from keras_transformer.layers.decoding_step import project_rows

B, T, H, K = 2, 7, 3, 6


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(B, T, H, K)).astype("float32")


def test_turns_each_pair_by_its_angle(x):
    positions = [3, 0, 11, 4, 4, 1, 50]
    found = ops.convert_to_numpy(rotate(x, np.array(positions)))
    expected = np.zeros_like(x, "float64")
    for t, position in enumerate(positions):
        for i in range(K // 2):
            angle = position / 10000 ** (2 * i / K)
            turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            expected[:, t, :, 2 * i : 2 * i + 2] = x[:, t, :, 2 * i : 2 * i + 2] @ np.array(turn).T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_dot_product_depends_on_the_distance_alone(x):
    query, key = x[:, :1], x[:, 1:2]

    def product(query_position, key_position):
        turned = rotate(query, np.array([query_position])), rotate(key, np.array([key_position]))
        return ops.convert_to_numpy(ops.sum(turned[0] * turned[1], axis=-1))

    np.testing.assert_allclose(product(5, 2), product(93, 90), rtol=1e-3, atol=1e-4)
    assert np.abs(product(5, 2) - product(5, 3)).max() > 1e-2


def test_attention_sees_distances_and_its_steps_do(randomize):
    x = np.random.default_rng(1).normal(size=(B, T, 12)).astype("float32")
    layer = MultiHeadAttention(H, rotary=True)
    layer(x)
    randomize(layer)
    twice = np.concatenate([x, x], axis=1)
    later = np.arange(2 * T) >= T
    shifted = ops.convert_to_numpy(layer(twice, padding_mask=np.stack([later] * B)))[:, T:]
    np.testing.assert_allclose(shifted, ops.convert_to_numpy(layer(x)), rtol=1e-4, atol=1e-5)
    whole = ops.convert_to_numpy(layer(x, causal=True))
    weights, cache = layer.decoding_weights(), layer.start_cache(B, T)
    for t in range(T):
        step = layer.start_step(ops.convert_to_tensor(t, "int32"), cache)
        position = ops.convert_to_tensor(x[:, t])
        context, cache = layer.decode_step(position, step, cache, weights)
        output = project_rows(context, weights["output"])
        np.testing.assert_allclose(ops.convert_to_numpy(output), whole[:, t], rtol=1e-4, atol=1e-4)


def test_what_cannot_turn_is_refused(x):
    with pytest.raises(ValueError, match="Received: head_dim=5"):
        rotate(x[..., :5], np.arange(T))
    with pytest.raises(ValueError, match="Received: head_dim=5"):
        MultiHeadAttention(H, head_dim=5, rotary=True)(np.zeros((B, T, 12)))
    with pytest.raises(ValueError, match="Received: a key that is not the query"):
        MultiHeadAttention(H, rotary=True)(np.zeros((B, T, 12)), np.zeros((B, T, 12)))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_query_may_be_given_as_the_key_too(dtype):
    layer, query = MultiHeadAttention(H, rotary=True, dtype=dtype), ops.ones((B, T, 12))
    given = keras.Input((None, 12))
    functional = keras.Model(given, layer(given, given))
    expected = ops.convert_to_numpy(layer(query))
    for found in (layer(query, query), layer(query, key=query, value=query), functional(query)):
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
