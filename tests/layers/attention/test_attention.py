"""The general attention layer: each score against its equation, widths, one query, masks."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Attention
from tests.layers.conftest import assert_equal, normal

B, T, S, D_Q, D_K, D_V, U = 2, 5, 7, 11, 13, 17, 19  # no two sizes equal


def network():
    return keras.Sequential([keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])


def score_of_one(layer, q, k):
    """The paper's formula for one query and one key, in float64."""
    weights = [np.asarray(weight, "float64") for weight in layer.get_weights()]
    if layer.score == "dot_product":
        return q @ k
    if layer.score == "scaled_dot_product":
        return q @ k / np.sqrt(len(k))
    if layer.score == "multiplicative":
        (matrix,) = weights
        return q @ matrix @ k
    if layer.score == "additive":
        of_query, of_key, u = weights
        return u @ np.tanh(k @ of_key + q @ of_query)
    inner, inner_bias, outer, outer_bias = weights
    hidden = np.tanh(np.concatenate([q, k]) @ inner + inner_bias)
    return (hidden @ outer + outer_bias)[0]


def loop(layer, query, key, value, mask):
    weights = np.zeros((B, T, S))
    for b, t in np.ndindex(B, T):
        seen = np.flatnonzero(mask[b, t])
        if len(seen):
            scores = np.array([score_of_one(layer, query[b, t], key[b, s]) for s in seen])
            exponentials = np.exp(scores - scores.max())
            weights[b, t, seen] = exponentials / exponentials.sum()
    return weights @ value, weights


SCORES = {
    "dot_product": (lambda: Attention("dot_product"), D_K),
    "scaled_dot_product": (Attention, D_K),
    "multiplicative": (lambda: Attention("multiplicative"), D_Q),
    "additive": (lambda: Attention("additive", units=U), D_Q),
    "additive of the query's width": (lambda: Attention("additive"), D_Q),
    "network": (lambda: Attention(network()), D_Q),
}


@pytest.mark.parametrize("score", SCORES)
def test_equals_the_loop(score, randomize):
    make, query_width = SCORES[score]
    query, key, value = normal((B, T, query_width), (B, S, D_K), (B, S, D_V))
    mask = np.random.default_rng(5).random((B, T, S)) < 0.6
    mask[0, 2] = False  # sees nothing
    layer = make()
    layer(query, key, value)
    randomize(layer)
    context, weights = layer(query, key, value, attention_mask=mask, return_attention_weights=True)
    expected_context, expected_weights = loop(layer, query, key, value, mask)
    assert_equal(weights, expected_weights)
    assert_equal(context, expected_context, tolerance=3e-5)
    assert np.all(ops.convert_to_numpy(context)[0, 2] == 0)
    sums = np.ones((B, T))
    sums[0, 2] = 0
    assert_equal(ops.sum(weights, axis=-1), sums)


@pytest.mark.parametrize("score", SCORES)
def test_one_query_is_the_first_of_many(score, randomize):
    make, query_width = SCORES[score]
    query, key = normal((B, T, query_width), (B, S, D_K))
    layer = make()
    layer(query, key)
    randomize(layer)
    many = [ops.convert_to_numpy(x) for x in layer(query, key, return_attention_weights=True)]
    one = layer(query[:, 0], key, return_attention_weights=True)
    for of_one, of_many in zip(one, many, strict=True):
        assert_equal(of_one, of_many[:, 0])


@pytest.mark.parametrize("score", ["scaled_dot_product", "additive"])
def test_masked_self_attention_sees_no_future_and_no_padding(score):
    (x,) = normal((B, T, D_Q))
    real = np.ones((B, T), bool)
    real[1, 3:] = False
    layer = Attention(score)
    before = ops.convert_to_numpy(layer(x, padding_mask=real, causal=True))
    x[:, 3:] += 1e3
    after = ops.convert_to_numpy(layer(x, padding_mask=real, causal=True))
    assert_equal(after[:, :3], before[:, :3])
    assert np.abs(after - before)[0, 3:].max() > 1


def test_equals_keras_own_layers():
    query, key, value = normal((B, T, D_K), (B, S, D_K), (B, S, D_V))
    expected = keras.layers.Attention()([query, value, key])
    assert_equal(Attention("dot_product")(query, key, value), ops.convert_to_numpy(expected))
    # Keras's additive attention has no projections: those of one that is the identity
    theirs = keras.layers.AdditiveAttention(use_scale=False)
    layer = Attention("additive")
    layer(query, key, value)
    layer.set_weights([np.eye(D_K), np.eye(D_K), np.ones(D_K)])
    assert_equal(layer(query, key, value), ops.convert_to_numpy(theirs([query, value, key])))


def test_gradients_are_finite_where_a_query_sees_nothing(gradient, randomize):
    query, key = normal((B, T, D_Q), (B, S, D_K))
    layer = Attention("additive")
    layer(query, key)
    randomize(layer)
    real = np.array([[True] * S, [False] * S])
    result = gradient(lambda x: ops.square(layer(x, key, padding_mask=real)), query)
    assert np.all(np.isfinite(result)) and np.any(result[0] != 0) and np.all(result[1] == 0)


@pytest.mark.parametrize("score", ["multiplicative", "network"])
def test_mixed_precision(score):
    query, key = normal((B, T, D_Q), (B, S, D_K))
    score = network() if score == "network" else score
    context, weights = Attention(score, dtype="mixed_bfloat16")(
        query, key, return_attention_weights=True
    )
    assert ops.dtype(context) == ops.dtype(weights) == "bfloat16"
    assert np.all(np.isfinite(ops.convert_to_numpy(ops.cast(context, "float32"))))


def test_a_network_is_saved_with_the_layer(tmp_path):
    query, key = keras.Input((None, D_Q)), keras.Input((None, D_K))
    model = keras.Model([query, key], Attention(network())(query, key))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    batch = normal((B, T, D_Q), (B, S, D_K))
    assert_equal(loaded(batch), ops.convert_to_numpy(model(batch)))


def test_what_cannot_be_is_refused():
    query, key = normal((B, T, D_Q), (B, S, D_K))
    with pytest.raises(ValueError, match="Received: score='cosine'"):
        Attention("cosine")
    with pytest.raises(ValueError, match="or a layer. Received: score=<function"):
        Attention(lambda x: x[..., :1])
    with pytest.raises(ValueError, match=r"Received: value.shape=\(2, 5, 11\), query.shape"):
        Attention("additive")(query, key, query)
    with pytest.raises(ValueError, match="Received: units=0"):
        Attention("additive", units=0)
    with pytest.raises(ValueError, match="Received: units=3, score='multiplicative'"):
        Attention("multiplicative", units=3)
    with pytest.raises(ValueError, match="query width 11, key width 13"):
        Attention()(query, key)
    with pytest.raises(ValueError, match="key=None"):
        Attention()(query[:, 0])
    with pytest.raises(ValueError, match=r"Received: query.shape=\(2, 5, 1, 11\)"):
        Attention("additive")(query[:, :, None], key)


@pytest.mark.parametrize(
    "arrays, masks, message",
    [
        (["query", "key"], {"attention_mask": (B, S)}, "attention_mask to begin with the sizes"),
        (["queries", "key"], {"attention_mask": (B, T, T)}, "attention_mask to begin with"),
        (["queries", "key"], {"padding_mask": (B + 1, S)}, "padding_mask to begin with"),
        (["queries", "key"], {"padding_mask": (B, S + 1)}, "padding_mask to begin with"),
        (["queries", "key of 1"], {}, "key to begin with"),
        (["queries", "row"], {}, r"Received: key.shape=\(2, 3\)"),
        (["queries", "key", "row"], {}, r"Received: value.shape=\(2, 3\)"),
    ],
)
def test_what_does_not_fit_together_is_refused(arrays, masks, message):
    shapes = {"query": (B, D_Q), "queries": (B, T, D_Q), "key": (B, S, D_Q), "row": (B, 3)}
    shapes["key of 1"] = (1, S, D_Q)
    layer = Attention()
    layer(np.zeros((B, T, D_Q)), np.zeros((B, S, D_Q)))  # a layer that is built looks too
    with pytest.raises(ValueError, match=message):
        layer(
            *normal(*(shapes[name] for name in arrays)),
            **{name: np.ones(shape, bool) for name, shape in masks.items()},
        )


def test_a_mask_of_one_sentence_is_for_all():
    query, key = normal((B, T, D_Q), (B, S, D_Q))
    real = np.arange(S)[None] < 3
    one, all_ = (
        Attention()(query, key, padding_mask=mask) for mask in (real, np.repeat(real, B, 0))
    )
    assert_equal(one, ops.convert_to_numpy(all_))


def test_a_network_gives_one_score():
    with pytest.raises(ValueError, match="gives 2 numbers"):
        Attention(keras.layers.Dense(2))(*normal((B, T, D_Q), (B, S, D_K)))


def test_a_real_key_is_seen_however_low_its_score():
    key = np.float32([[[-1.0], [1.0]]])
    context, weights = Attention("dot_product")(
        np.float32([[[1e10]]]),
        key,
        padding_mask=np.array([[True, False]]),
        return_attention_weights=True,
    )
    assert_equal(weights, [[[1.0, 0.0]]])
    assert_equal(context, key[:, :1])


def test_dropout_acts_in_training_alone():
    query, key = normal((B, T, D_Q), (B, S, D_Q))
    layer = Attention(dropout=0.999)
    expected, weights = layer(query, key, return_attention_weights=True)
    dropped, same = layer(query, key, return_attention_weights=True, training=True)
    assert_equal(same, ops.convert_to_numpy(weights))
    expected = ops.convert_to_numpy(expected)
    assert np.mean(ops.convert_to_numpy(dropped) == 0) > 0.9 > np.mean(expected == 0)
    assert_equal(layer(query, key, training=False), expected)
