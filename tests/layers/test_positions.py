"""Positions against the papers' formulas: sinusoidal, learned, rotary, and ALiBi."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    LearnedPositions,
    MultiHeadAttention,
    ScaledDotProductAttention,
    SinusoidalPositions,
    alibi_bias,
    alibi_slopes,
    rotate,
    sinusoidal_encoding,
)
from keras_transformer.layers.decoding_step import project_rows

B, T, S, H, K = 2, 5, 7, 3, 6
LAYOUTS = ["interleaved", "concatenated"]


def formula(num_positions, d_model, layout, base=10000.0):
    """Section 3.5, entry by entry."""
    encoding = np.zeros((num_positions, d_model))
    for position in range(num_positions):
        num_pairs = -(-d_model // 2)
        for i in range(num_pairs):
            angle = position / base ** (2 * i / d_model)
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, num_pairs + i)
            encoding[position, sine] = math.sin(angle)
            if cosine < d_model:  # of an odd width, the last pair is a sine alone
                encoding[position, cosine] = math.cos(angle)
    return encoding


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("base", [10000.0, 37.0])
@pytest.mark.parametrize("d_model", [14, 15, 1])
def test_equals_the_formula(layout, base, d_model):
    encoding = sinusoidal_encoding(ops.arange(53), d_model, layout, base)
    assert ops.dtype(encoding) == "float32"
    expected = formula(53, d_model, layout, base)
    np.testing.assert_allclose(ops.convert_to_numpy(encoding), expected, atol=1e-5)


def test_values_by_hand():
    encoding = ops.convert_to_numpy(sinusoidal_encoding(ops.arange(2), 4))
    expected = [[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]]
    np.testing.assert_allclose(encoding, expected, atol=1e-6)


def test_far_positions():
    positions = np.array([1, 997, 10007])
    encoding = ops.convert_to_numpy(sinusoidal_encoding(positions, 6))
    expected = formula(10008, 6, "interleaved")[positions]
    np.testing.assert_allclose(encoding, expected, atol=2e-3)  # float32 angles: 10007 * 2^-24


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_shift_is_linear(layout):
    """PE(pos + k) is a linear function of PE(pos), the reason that the paper gives for it."""
    encoding = ops.convert_to_numpy(sinusoidal_encoding(ops.arange(97), 10, layout, base=50.0))
    for shift in (1, 7):
        before, after = encoding[:-shift], encoding[shift:]
        linear_map, *_ = np.linalg.lstsq(before[:43], after[:43], rcond=None)
        np.testing.assert_allclose(before[43:] @ linear_map, after[43:], atol=1e-4)


def test_the_layer_concatenates_the_encoding():
    x = np.random.default_rng(1).normal(size=(2, 5, 7)).astype("float32")
    layer = SinusoidalPositions(combine="concatenate", width=4)
    output = ops.convert_to_numpy(layer(x))
    np.testing.assert_array_equal(output[..., :7], x)
    for sentence in output:
        np.testing.assert_allclose(sentence[:, 7:], formula(5, 4, "interleaved"), atol=1e-6)
    assert layer.compute_output_shape((2, 5, 7)) == (2, 5, 11)
    odd = ops.convert_to_numpy(SinusoidalPositions(combine="concatenate")(x))
    np.testing.assert_allclose(odd[1, :, 7:], formula(5, 7, "interleaved"), atol=1e-6)
    with pytest.raises(ValueError, match="Received: combine='mix'"):
        SinusoidalPositions(combine="mix")
    with pytest.raises(ValueError, match="combine='add', width=4"):
        SinusoidalPositions(width=4)


@pytest.mark.parametrize("combine", [None, "add", "concatenate"])
def test_self_attention_knows_the_order_by_positions_alone(combine):
    """Without positions a permuted sentence gives the permuted output; with them it does not."""
    x = np.random.default_rng(1).normal(size=(1, 6, 8)).astype("float32")
    order = [4, 0, 5, 1, 3, 2]
    attention = MultiHeadAttention(2)

    def output(x):
        x = SinusoidalPositions(combine=combine)(x) if combine else x
        return ops.convert_to_numpy(attention(x))

    difference = np.abs(output(x[:, order]) - output(x)[:, order]).max()
    assert difference < 1e-5 if combine is None else difference > 1e-2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layer_adds_the_encoding_at_any_length(layout):
    layer = SinusoidalPositions(layout=layout, base=500.0)
    for length in (1, 5, 211):
        x = np.random.default_rng(length).normal(size=(3, length, 14)).astype("float32")
        expected = x + formula(length, 14, layout, 500.0)
        np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, atol=5e-5)
    x = np.zeros((3, 5, 13), "float32")  # an odd width, as the other positions take it
    layer = SinusoidalPositions(layout=layout, base=500.0)
    np.testing.assert_allclose(layer(x)[2], formula(5, 13, layout, 500.0), atol=5e-5)
    assert layer.weights == []


@pytest.mark.parametrize("layer", [SinusoidalPositions(), LearnedPositions(13)])
def test_encode_equals_the_call(layer):
    whole = ops.convert_to_numpy(layer(np.zeros((1, 13, 6), "float32")))[0]
    for positions in ([4], [0, 12], [7, 3, 3]):
        encoding = ops.convert_to_numpy(layer.encode(ops.convert_to_tensor(positions)))
        np.testing.assert_allclose(encoding, whole[positions], atol=1e-6)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="Received: layout='both'"):
        SinusoidalPositions(layout="both")
    with pytest.raises(ValueError, match="Received: layout='both'"):
        sinusoidal_encoding(ops.arange(3), 4, layout="both")
    with pytest.raises(ValueError, match="Received: base=0"):
        SinusoidalPositions(base=0)


@pytest.mark.parametrize("layer", [SinusoidalPositions(), LearnedPositions(9)])
@pytest.mark.parametrize("shape", [(9, 8), (2, 9, 9, 8)])
def test_other_ranks_are_refused(layer, shape):
    with pytest.raises(ValueError, match="must have shape .B, T, D."):
        layer(np.zeros(shape))


# === Learned ===


def test_learned_positions_add_the_rows_of_the_table():
    layer = LearnedPositions(max_length=11)
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    output = ops.convert_to_numpy(layer(x))
    (table,) = layer.get_weights()
    assert table.shape == (11, 6) and np.all(table.std(axis=1) > 0)
    np.testing.assert_allclose(output, x + table[:5], rtol=1e-6)
    whole = ops.convert_to_numpy(layer(np.zeros((1, 11, 6), "float32")))
    np.testing.assert_array_equal(whole[0], table)


def test_learned_positions_concatenate_the_rows_of_the_table():
    layer = LearnedPositions(max_length=11, combine="concatenate", width=4)
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    output = ops.convert_to_numpy(layer(x))
    (table,) = layer.get_weights()
    assert table.shape == (11, 4) and output.shape == (2, 5, 10)
    np.testing.assert_array_equal(output, np.concatenate([x, [table[:5]] * 2], axis=-1))


def test_a_length_over_the_table_is_refused():
    layer = LearnedPositions(max_length=11)
    with pytest.raises(ValueError, match=r"max_length=11 .*Received: x.shape=\(1, 12, 6\)"):
        layer(np.zeros((1, 12, 6)))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="lengths unknown in a graph")
def test_a_length_known_only_when_the_graph_runs_is_held_to_the_last_row():
    import tensorflow as tf

    layer = LearnedPositions(max_length=3)
    layer.build((None, None, 2))
    function = tf.function(layer, input_signature=[tf.TensorSpec([None, None, 2])])
    output = function(tf.zeros([1, 5, 2])).numpy()[0]
    (table,) = layer.get_weights()
    np.testing.assert_array_equal(output, table[[0, 1, 2, 2, 2]])


def test_a_size_below_one_is_refused():
    with pytest.raises(ValueError, match="Received: max_length=0"):
        LearnedPositions(max_length=0)


# === Rotary ===


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(B, S, H, K)).astype("float32")


def test_rotation_turns_each_pair_by_its_angle(x):
    positions = [3, 0, 11, 4, 4, 1, 50]
    found = ops.convert_to_numpy(rotate(x, np.array(positions)))
    expected = np.zeros_like(x, "float64")
    for t, position in enumerate(positions):
        for i in range(K // 2):
            angle = position / 10000 ** (2 * i / K)
            turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            expected[:, t, :, 2 * i : 2 * i + 2] = x[:, t, :, 2 * i : 2 * i + 2] @ np.array(turn).T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_rotated_dot_product_depends_on_the_distance_alone(x):
    query, key = x[:, :1], x[:, 1:2]

    def product(query_position, key_position):
        turned = rotate(query, np.array([query_position])), rotate(key, np.array([key_position]))
        return ops.convert_to_numpy(ops.sum(turned[0] * turned[1], axis=-1))

    np.testing.assert_allclose(product(5, 2), product(93, 90), rtol=1e-3, atol=1e-4)
    assert np.abs(product(5, 2) - product(5, 3)).max() > 1e-2


def test_rotary_attention_sees_distances_and_its_steps_do(randomize):
    x = np.random.default_rng(1).normal(size=(B, S, 12)).astype("float32")
    layer = MultiHeadAttention(H, rotary=True)
    layer(x)
    randomize(layer)
    twice = np.concatenate([x, x], axis=1)
    later = np.arange(2 * S) >= S
    shifted = ops.convert_to_numpy(layer(twice, padding_mask=np.stack([later] * B)))[:, S:]
    np.testing.assert_allclose(shifted, ops.convert_to_numpy(layer(x)), rtol=1e-4, atol=1e-5)
    whole = ops.convert_to_numpy(layer(x, causal=True))
    weights, cache = layer.decoding_weights(), layer.start_cache(B, S)
    for t in range(S):
        step = layer.start_step(ops.convert_to_tensor(t, "int32"), cache)
        position = ops.convert_to_tensor(x[:, t])
        context, cache = layer.decode_step(position, step, cache, weights)
        output = project_rows(context, weights["output"])
        np.testing.assert_allclose(ops.convert_to_numpy(output), whole[:, t], rtol=1e-4, atol=1e-4)


def test_what_cannot_turn_is_refused(x):
    with pytest.raises(ValueError, match="Received: head_dim=5"):
        rotate(x[..., :5], np.arange(S))
    with pytest.raises(ValueError, match="Received: head_dim=5"):
        MultiHeadAttention(H, head_dim=5, rotary=True)(np.zeros((B, S, 12)))
    with pytest.raises(ValueError, match="Received: a key that is not the query"):
        MultiHeadAttention(H, rotary=True)(np.zeros((B, S, 12)), np.zeros((B, S, 12)))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_query_may_be_given_as_the_key_too(dtype):
    layer, query = MultiHeadAttention(H, rotary=True, dtype=dtype), ops.ones((B, S, 12))
    given = keras.Input((None, 12))
    functional = keras.Model(given, layer(given, given))
    expected = ops.convert_to_numpy(layer(query))
    for found in (layer(query, query), layer(query, key=query, value=query), functional(query)):
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


# === ALiBi ===


def test_the_slopes_of_alibi_are_those_of_the_paper():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-n for n in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(16)[:3], [2**-0.5, 2**-1, 2**-1.5])
    # its code's list for 12 heads: those of 8, then every other of 16
    expected = [2.0**-n for n in range(1, 9)] + [2 ** -(0.5 + n) for n in range(4)]
    np.testing.assert_allclose(alibi_slopes(12), expected)
    assert alibi_slopes(1).tolist() == [2.0**-8]


def test_the_bias_of_alibi_falls_with_the_distance_on_both_sides():
    distances = np.arange(T)[:, None] - np.arange(S)
    bias = ops.convert_to_numpy(alibi_bias(distances, H))
    for h, t, s in np.ndindex(H, T, S):
        assert bias[h, t, s] == pytest.approx(-alibi_slopes(H)[h] * abs(t - s))


def test_attention_adds_alibi_to_the_scores(reference):
    rng = np.random.default_rng(3)
    query, key, value = (rng.normal(size=(B, T, H, K)).astype("float32") for _ in range(3))
    context, weights = ScaledDotProductAttention(alibi=True)(
        query, key, value, causal=True, return_attention_weights=True
    )
    for b, h, t in np.ndindex(B, H, T):
        scores = key[b, : t + 1, h] @ query[b, t, h] / np.sqrt(K)
        scores -= alibi_slopes(H)[h] * (t - np.arange(t + 1))
        expected = np.exp(scores) / np.exp(scores).sum()
        found = ops.convert_to_numpy(weights)[b, h, t]
        np.testing.assert_allclose(found[: t + 1], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            ops.convert_to_numpy(context)[b, t, h],
            expected @ value[b, : t + 1, h],
            rtol=1e-4,
            atol=1e-5,
        )


def test_with_alibi_the_last_queries_stand_at_the_last_keys():
    """With more keys than queries, as where a text goes on."""
    rng = np.random.default_rng(3)
    query, key, value = (rng.normal(size=(B, S, H, K)).astype("float32") for _ in range(3))
    layer = ScaledDotProductAttention(alibi=True)
    whole = ops.convert_to_numpy(layer(query, key, value, causal=True))
    last = ops.convert_to_numpy(layer(query[:, -2:], key, value, causal=True))
    np.testing.assert_allclose(last, whole[:, -2:], rtol=1e-5, atol=1e-6)
