"""Sinusoidal positions against the paper's formula."""

import math

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    LearnedPositions,
    MultiHeadAttention,
    SinusoidalPositions,
    sinusoidal_encoding,
)

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


def test_encode_equals_the_call():
    layer = SinusoidalPositions()
    whole = ops.convert_to_numpy(layer(np.zeros((1, 13, 6), "float32")))[0]
    for positions in ([4], [0, 12], [7, 3, 3]):
        encoding = ops.convert_to_numpy(layer.encode(ops.convert_to_tensor(positions)))
        np.testing.assert_allclose(encoding, whole[positions], atol=1e-6)


def test_errors():
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
