"""Multi-head attention against NumPy, against Keras's own, and step by step."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    LinearAttention,
    LocalAttention,
    MultiHeadAttention,
    PositiveRandomFeatures,
    ScaledDotProductAttention,
)
from keras_transformer.layers.decoding_step import project_rows
from tests.layers.conftest import assert_equal, normal

B, T, S, H, K = 2, 5, 7, 3, 11
D, D_K, D_V = 12, 17, 19  # widths of query, key and value


@pytest.mark.parametrize("head_dim", [None, K])
@pytest.mark.parametrize("use_bias", [True, False])
def test_equals_numpy_with_other_widths(reference, randomize, head_dim, use_bias):
    query, key, value = normal((B, T, D), (B, S, D_K), (B, S, D_V))
    mask = np.random.default_rng(5).random((B, T, S)) < 0.6
    mask[0, 2] = False
    layer = MultiHeadAttention(H, head_dim=head_dim, use_bias=use_bias)
    layer(query, key, value)
    width = H * (head_dim or D // H)
    expected_weights = (D + D_K + D_V) * width + width * D + use_bias * (3 * width + D)
    assert layer.count_params() == expected_weights
    randomize(layer)
    output, weights = layer(query, key, value, attention_mask=mask, return_attention_weights=True)
    expected = reference.multi_head(layer, query, key, value, mask)
    assert_equal(output, expected[0], tolerance=3e-5)
    assert_equal(weights, expected[1])
    assert_equal(layer(query, key, value, attention_mask=mask), expected[0], tolerance=3e-5)


@pytest.mark.parametrize("value_dim, output_dim", [(None, None), (5, 8)])
def test_each_head_on_its_own_slice(reference, randomize, value_dim, output_dim):
    query, key = normal((B, T, D), (B, S, 15))
    layer = MultiHeadAttention(
        H, head_dim=K, value_dim=value_dim, output_dim=output_dim, sliced=True
    )
    layer(query, key)
    randomize(layer)
    output, weights = layer(query, key, return_attention_weights=True)
    contexts = []
    for h in range(H):

        def projected(projection, x, h=h):
            kernels, bias = (np.asarray(w, "float64") for w in projection.get_weights())
            width, dim = x.shape[-1] // H, kernels.shape[-1]
            piece = x[..., h * width : (h + 1) * width]
            return piece @ kernels[h] + bias[h * dim : (h + 1) * dim]

        parts = [
            projected(layer.query_projection, query),
            projected(layer.key_projection, key),
            projected(layer.value_projection, key),
        ]
        assert parts[2].shape[-1] == (value_dim or K)
        of_head = [reference.attention(*(x[b] for x in parts)) for b in range(B)]
        contexts.append([context for context, _ in of_head])
        assert_equal(weights[:, h], [head_weights for _, head_weights in of_head])
    expected = reference.dense(layer.output_projection, np.concatenate(contexts, axis=-1))
    assert_equal(output, expected, tolerance=3e-5)
    num_inputs = (D + 15) // H * K + 15 // H * (value_dim or K)
    num_biases = H * (2 * K + (value_dim or K)) + (output_dim or D)
    of_output = H * (value_dim or K) * (output_dim or D)
    assert layer.count_params() == H * num_inputs + of_output + num_biases


@pytest.mark.parametrize("widths", [{}, {"value_dim": 5, "output_dim": 9}], ids=["", "own widths"])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_keras_multi_head_attention(randomize, causal, widths):
    query, key, value = normal((B, T, D), (B, T, D_K), (B, T, D_V))
    layer = MultiHeadAttention(H, head_dim=K, **widths)
    layer(query, key, value)
    randomize(layer)
    theirs = keras.layers.MultiHeadAttention(
        H, K, value_dim=widths.get("value_dim"), output_shape=widths.get("output_dim", D)
    )
    theirs(query, value, key, return_attention_scores=True)  # the other way fails on JAX
    shapes = [weight.shape for weight in theirs.weights]
    names = ["query", "key", "value", "output"]
    projections = [getattr(layer, f"{name}_projection") for name in names]
    weights = [weight for projection in projections for weight in projection.get_weights()]
    theirs.set_weights([w.reshape(shape) for w, shape in zip(weights, shapes, strict=True)])

    real = np.ones((B, T), bool)
    real[1, 3:] = False
    output, weights = layer(
        query, key, value, padding_mask=real, causal=causal, return_attention_weights=True
    )
    mask = np.broadcast_to(real[:, None], (B, T, T)) & (np.tri(T, dtype=bool) | (not causal))
    expected, expected_weights = theirs(
        query, value, key, attention_mask=mask, return_attention_scores=True
    )
    assert_equal(output, ops.convert_to_numpy(expected), tolerance=3e-5)
    assert_equal(weights, ops.convert_to_numpy(expected_weights))


def test_key_and_value_default_to_what_stands_before_them():
    x, key = normal((B, T, D), (B, S, D))
    layer = MultiHeadAttention(H)
    assert_equal(layer(x), ops.convert_to_numpy(layer(x, x, x)))
    assert_equal(layer(x, key), ops.convert_to_numpy(layer(x, key, key)))
    assert np.abs(ops.convert_to_numpy(layer(x) - layer(x, x[:, ::-1], x))).max() > 1e-2


def test_the_future_does_not_change_the_past():
    (x,) = normal((B, T, D))
    layer = MultiHeadAttention(H)
    before = ops.convert_to_numpy(layer(x, causal=True))
    x[:, 3:] += 1e3
    after = ops.convert_to_numpy(layer(x, causal=True))
    assert_equal(after[:, :3], before[:, :3])
    assert np.all(np.abs(after - before)[:, 3:].max(axis=-1) > 1)


def test_nothing_leaks_from_padding():
    query, key = normal((B, T, D), (B, S, D_K))
    real = np.ones((B, S), bool)
    real[0, 4:] = False
    layer = MultiHeadAttention(H)
    before = ops.convert_to_numpy(layer(query, key, padding_mask=real))
    key[0, 4:] = 1e9
    assert_equal(layer(query, key, padding_mask=real), before)


def test_a_sentence_of_padding_alone_gives_the_bias_and_finite_gradients(gradient, randomize):
    query, key = normal((B, T, D), (B, S, D))
    real = np.ones((B, S), bool)
    real[1] = False
    layer = MultiHeadAttention(H)
    layer(query, key)
    randomize(layer)
    output = ops.convert_to_numpy(layer(query, key, padding_mask=real))
    bias = layer.output_projection.get_weights()[1]
    assert_equal(output[1], np.broadcast_to(bias, (T, D)))
    result = gradient(lambda x: ops.square(layer(x, key, padding_mask=real)), query)
    assert np.all(np.isfinite(result)) and np.any(result[0] != 0) and np.all(result[1] == 0)


def one_step(layer, x, step_number, cache, weights):
    step = layer.start_step(ops.convert_to_tensor(step_number, "int32"), cache)
    x = ops.convert_to_tensor(x[:, step_number])
    context, cache = layer.decode_step(x, step, cache, weights)
    return project_rows(context, weights["output"]), cache


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        dict(head_dim=K),
        dict(use_bias=False),
        dict(head_dim=K, value_dim=5),
        dict(sliced=True),
        dict(sliced=True, head_dim=K, value_dim=5, use_bias=False),
    ],
)
def test_steps_equal_the_whole_pass(randomize, arguments):
    rows = 6
    (x,) = normal((rows, T, D))
    layer = MultiHeadAttention(H, **arguments)
    layer(x)
    whole = ops.convert_to_numpy(randomize(layer)(x, causal=True))
    weights, cache = layer.decoding_weights(), layer.start_cache(rows, T + 2)
    for step in range(T):
        output, cache = one_step(layer, x, step, cache, weights)
        assert all(part.shape[0] == rows for part in cache.values())
        assert_equal(output, whole[:, step], tolerance=3e-5)


def test_steps_in_bfloat16_come_close():
    (x,) = normal((B, T, D))
    layer = MultiHeadAttention(H, dtype="mixed_bfloat16")
    whole = ops.convert_to_numpy(ops.cast(layer(x, causal=True), "float32"))
    weights, cache = layer.decoding_weights(), layer.start_cache(B, T)
    for step in range(T):
        position = ops.cast(x, "bfloat16")
        output, cache = one_step(layer, position, step, cache, weights)
        parts = output, *cache.values(), *keras.tree.flatten(weights)
        assert {ops.dtype(part) for part in parts} == {"bfloat16"}
        assert_equal(ops.cast(output, "float32"), whole[:, step], tolerance=0.03)


def test_a_cache_follows_its_rows_when_they_are_reordered():
    rows, order = 6, [2, 0, 1, 5, 5, 3]
    (x,) = normal((rows, T, D))
    layer = MultiHeadAttention(H)
    layer(x)
    weights, cache = layer.decoding_weights(), layer.start_cache(rows, T)
    for step in range(T):
        if step == 3:
            cache = {name: ops.take(part, np.array(order), axis=0) for name, part in cache.items()}
            x[:, :3] = x[order, :3]
        output, cache = one_step(layer, x, step, cache, weights)
    whole = ops.convert_to_numpy(layer(x, causal=True))
    assert_equal(output, whole[:, -1])


def attend(layer, x, memory, num_hypotheses):
    weights = layer.memory_weights()
    context = layer.attend_to_memory(x, memory, num_hypotheses, weights)
    return project_rows(context, weights["output"])


@pytest.mark.parametrize("num_hypotheses", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_memory_made_once_serves_many_queries(randomize, num_hypotheses, masked):
    query, key, value = normal((B, T * num_hypotheses, D), (B, S, D_K), (B, S, D_V))
    real = None
    if masked:
        real = np.ones((B, S), bool)
        real[1, 4:] = False
    layer = MultiHeadAttention(H, head_dim=K)
    layer(query, key, value)
    whole = ops.convert_to_numpy(randomize(layer)(query, key, value, padding_mask=real))
    memory = layer.start_memory(*map(ops.convert_to_tensor, (key, value)), padding_mask=real)
    assert all(part.shape[0] == B for part in memory.values())
    for t in range(T):
        those = slice(t * num_hypotheses, (t + 1) * num_hypotheses)
        x = ops.convert_to_tensor(query[:, those].reshape(-1, D))
        output = attend(layer, x, memory, num_hypotheses)
        assert_equal(output, whole[:, those].reshape(-1, D), tolerance=3e-5)


def test_the_value_of_a_memory_defaults_to_the_key():
    query, key = normal((B, D), (B, S, D_K))
    query, key = map(ops.convert_to_tensor, (query, key))
    layer = MultiHeadAttention(H)
    expected = ops.convert_to_numpy(layer(query[:, None], key))[:, 0]
    assert_equal(attend(layer, query, layer.start_memory(key), 1), expected)


@keras.saving.register_keras_serializable("keras_transformer_tests")
class MeanAttention(ScaledDotProductAttention):
    """Attends to all keys alike."""

    def call(self, query, key, value, **masks):
        return ops.repeat(ops.mean(value, axis=1, keepdims=True), query.shape[1], axis=1)


def test_another_attention_takes_the_place_within_the_heads(reference):
    query, key = normal((B, T, D), (B, S, D))
    layer = MultiHeadAttention(H, attention=MeanAttention())
    output = ops.convert_to_numpy(layer(query, key))
    mean = reference.dense(layer.value_projection, key).mean(axis=1, keepdims=True)
    expected = reference.dense(layer.output_projection, np.repeat(mean, T, axis=1))
    assert_equal(output, expected)
    copy = MultiHeadAttention.from_config(layer.get_config())
    assert isinstance(copy.attention, MeanAttention)


def test_every_weight_learns():
    query, key, value = normal((B, T, D), (B, S, D_K), (B, S, D_V))
    given = [keras.Input(x.shape[1:]) for x in (query, key, value)]
    model = keras.Model(given, MultiHeadAttention(H)(*given))
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    before = model.get_weights()
    model.train_on_batch([query, key, value], np.ones((B, T, D)))
    for weight, old in zip(model.weights, before, strict=True):
        change = np.abs(ops.convert_to_numpy(weight) - old).max()
        # the key's bias adds the same to every score of a query: the softmax does not see it
        assert (change > 1e-5) == ("key/bias" not in weight.path), weight.path


def test_errors():
    (x,) = normal((B, T, 10))
    with pytest.raises(ValueError, match=r"Received: \(2, 12\), \(2, 7, 12\)"):
        MultiHeadAttention(3)(np.zeros((2, 12)), np.zeros((2, 7, 12)))
    with pytest.raises(ValueError, match="Received: width 10, num_heads=3"):
        MultiHeadAttention(3, head_dim=4, sliced=True)(np.zeros((2, 5, 10)))
    with pytest.raises(ValueError, match="value_dim=0"):
        MultiHeadAttention(3, value_dim=0)
    with pytest.raises(ValueError, match="Received: d_model=10, num_heads=3"):
        MultiHeadAttention(3)(x)
    with pytest.raises(ValueError, match="Received: num_heads=0, head_dim=None"):
        MultiHeadAttention(0)
    with pytest.raises(ValueError, match="Received: num_heads=3, head_dim=0"):
        MultiHeadAttention(3, head_dim=0)
    with pytest.raises(ValueError, match=r"Received: padding_mask.shape=\(2,\)"):
        MultiHeadAttention(2)(x, padding_mask=np.ones(2, bool))
    with pytest.raises(ValueError, match=r"Received: attention_mask.shape=\(2, 1, 5, 5\)"):
        MultiHeadAttention(2)(x, attention_mask=np.ones((2, 1, 5, 5), bool))


@pytest.mark.parametrize("shape", [(B, T, 2, 6), (T, D)])
def test_another_rank_is_refused_by_a_layer_that_is_built(shape):
    layer = MultiHeadAttention(H)
    layer(np.zeros((B, T, D)))
    with pytest.raises(ValueError, match="query, key and value must have shapes"):
        layer(np.zeros(shape))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MultiHeadAttention("2"), "Received: num_heads='2'"),
        (lambda: MultiHeadAttention(2, attention=3), "Received: attention=3"),
        (lambda: LocalAttention(2.5), "Received: window=2.5"),
        (lambda: LocalAttention(None), "Received: window=None"),
        (lambda: LinearAttention("elu"), "Received: feature_map='elu'"),
        (lambda: PositiveRandomFeatures(8).redraw(), "has seen no input"),
    ],
)
def test_wrong_types_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
