"""ALiBi against the paper's slopes and a loop."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import ScaledDotProductAttention, alibi_bias, alibi_slopes

B, T, S, H, K = 2, 5, 7, 3, 6


def test_slopes_are_those_of_the_paper():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-n for n in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(16)[:3], [2**-0.5, 2**-1, 2**-1.5])
    # its code's list for 12 heads: those of 8, then every other of 16
    expected = [2.0**-n for n in range(1, 9)] + [2 ** -(0.5 + n) for n in range(4)]
    np.testing.assert_allclose(alibi_slopes(12), expected)
    assert alibi_slopes(1).tolist() == [2.0**-8]


def test_bias_falls_with_the_distance_on_both_sides():
    distances = np.arange(T)[:, None] - np.arange(S)
    bias = ops.convert_to_numpy(alibi_bias(distances, H))
    for h, t, s in np.ndindex(H, T, S):
        assert bias[h, t, s] == pytest.approx(-alibi_slopes(H)[h] * abs(t - s))


def test_attention_adds_it_to_the_scores(reference):
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


def test_the_last_queries_stand_at_the_last_keys():
    """With more keys than queries, as where a text goes on."""
    rng = np.random.default_rng(3)
    query, key, value = (rng.normal(size=(B, S, H, K)).astype("float32") for _ in range(3))
    layer = ScaledDotProductAttention(alibi=True)
    whole = ops.convert_to_numpy(layer(query, key, value, causal=True))
    last = ops.convert_to_numpy(layer(query[:, -2:], key, value, causal=True))
    np.testing.assert_allclose(last, whole[:, -2:], rtol=1e-5, atol=1e-6)
