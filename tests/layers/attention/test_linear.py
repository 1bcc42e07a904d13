"""Linear attention against the quadratic form of the same sums, and Performer against softmax."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.layers import (
    EluFeatures,
    LinearAttention,
    PositiveRandomFeatures,
    ScaledDotProductAttention,
)
from tests.layers.conftest import assert_equal, normal

B, T, S, H, K, V = 2, 23, 19, 3, 6, 5


def make(kind, **arguments):
    features = None if kind == "elu" else PositiveRandomFeatures(num_features=17, seed=1)
    return LinearAttention(features, chunk_size=5, **arguments)


@pytest.fixture
def arrays():
    return normal((B, T, H, K), (B, T, H, K), (B, T, H, V))


def phi(layer, x):
    """The features of one vector, from the papers' formulas, in float64."""
    if isinstance(layer.feature_map, EluFeatures):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
    directions = np.asarray(layer.feature_map.directions, "float64")
    x = x / K**0.25
    return (np.exp(directions @ x - x @ x / 2) + 1e-6) / np.sqrt(len(directions))


def loop(layer, query, key, value, real, causal):
    """Eq. 4 of Katharopoulos et al., pair by pair."""
    context = np.zeros((*query.shape[:3], V))
    queries, keys = (
        {place: phi(layer, x[place]) for place in np.ndindex(x.shape[:3])} for x in (query, key)
    )
    for b, t, h in np.ndindex(context.shape[:3]):
        total = 0.0
        for s in range(key.shape[1]):
            if real[b, s] and (s <= t or not causal):
                weight = queries[b, t, h] @ keys[b, s, h]
                context[b, t, h] += weight * value[b, s, h]
                total += weight
        if total:
            context[b, t, h] /= total
    return context


@pytest.mark.parametrize("kind", ["elu", "performer"])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_loop_over_pairs(arrays, kind, causal):
    real = np.ones((B, T), bool)
    real[1, 17:] = False
    real[0, :2] = False  # causal, the first two see nothing
    layer = make(kind)
    found = layer(*arrays, padding_mask=real, causal=causal)
    assert_equal(found, loop(layer, *arrays, real, causal))
    assert not causal or np.all(ops.convert_to_numpy(found)[0, :2] == 0)


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_other_lengths_of_queries_and_keys(arrays, kind):
    query, key, value = arrays[0], arrays[1][:, :S], arrays[2][:, :S]
    layer = make(kind)
    assert_equal(layer(query, key, value), loop(layer, query, key, value, np.ones((B, S)), False))


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_steps_equal_the_whole_pass(arrays, kind):
    layer = make(kind)
    layer.build(*(x.shape for x in arrays))  # a model that was never called can decode
    cache = layer.start_cache(B, T, H, K, V)
    steps = []
    for t in range(T):
        position = [ops.convert_to_tensor(x[:, t]) for x in arrays]
        step = layer.start_step(ops.convert_to_tensor(t, "int32"), cache)
        context, cache = layer.decode_step(*position, step, cache)
        steps.append(ops.convert_to_numpy(context))
    assert_equal(layer(*arrays, causal=True), np.stack(steps, axis=1))


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_a_memory_gives_what_the_call_gives(arrays, kind):
    real = np.ones((B, T), bool)
    real[0, 4:] = False
    real[1] = False  # zeros
    layer = make(kind)
    expected = ops.convert_to_numpy(layer(*arrays, padding_mask=real))
    memory = layer.start_memory(*map(ops.convert_to_tensor, arrays[1:]), padding_mask=real)
    found = layer.attend_to_memory(ops.convert_to_tensor(arrays[0]), memory)
    assert_equal(found, expected)
    assert np.all(expected[1] == 0)


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_neither_the_future_nor_padding_leaks(arrays, kind):
    layer = make(kind)
    real = np.ones((B, T), bool)
    real[0, 20:] = False
    before = ops.convert_to_numpy(layer(*arrays, padding_mask=real, causal=True))
    query, key, value = arrays
    key[:, 9:] += 1e3
    value[:, 9:] -= 1e3
    key[0, 20:], value[0, 20:] = 1e9, -1e9
    after = ops.convert_to_numpy(layer(query, key, value, padding_mask=real, causal=True))
    assert_equal(after[:, :9], before[:, :9])
    assert np.all(np.isfinite(after)) and np.abs(after).max() < 1e5


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_one_compiled_function_serves_every_length(kind):
    layer = make(kind)
    layer.build(*[(None, None, H, K)] * 3)

    def attend(x):
        x = ops.reshape(x, (-1, ops.shape(x)[1], H, K))
        return layer(x, 2 * x, x + 1, causal=True)

    compiled = backend.compile_function(attend)
    for batch, length in ((2, 23), (3, 4), (1, 1), (0, 5)):
        x = np.random.default_rng(1).normal(size=(batch, length, H, K)).astype("float32")
        expected = ops.convert_to_numpy(layer(x, 2 * x, x + 1, causal=True))
        assert_equal(compiled(ops.reshape(x, (batch, length, H * K))), expected)


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_gradients_are_those_of_the_quadratic_form(arrays, kind, gradient):
    layer = make(kind)
    query, key, value = arrays
    layer.build(query.shape, key.shape, value.shape)

    def quadratic(query):
        features, keys = layer.feature_map(query), layer.feature_map(key)
        before = ops.convert_to_tensor(np.tri(T, dtype="float32"))
        weights = ops.einsum("bthm,bshm->bhts", features, keys) * before
        weights = weights / ops.sum(weights, axis=-1, keepdims=True)
        return ops.square(ops.einsum("bhts,bshv->bthv", weights, value))

    expected = gradient(quadratic, query)
    found = gradient(lambda x: ops.square(layer(x, key, value, causal=True)), query)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_no_array_of_length_by_length(causal):
    """Neither forward nor backward."""
    if keras.backend.backend() != "jax":
        pytest.skip("JAX alone tells the sizes without computing them")
    import jax

    layer = LinearAttention(chunk_size=64)
    length = 2**16
    x = jax.ShapeDtypeStruct((1, length, 1, 8), "float32")

    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (np.prod(out.aval.shape) for out in equation.outvars)
            for inner in jax.core.jaxprs_in_params(equation.params):
                yield from sizes(inner)

    jaxpr = jax.make_jaxpr(jax.grad(lambda x: ops.sum(layer(x, x, x, causal=causal))))(x).jaxpr
    assert max(sizes(jaxpr)) <= 64 * length * 2


def test_no_array_of_length_by_length_in_a_graph():
    """As above, on TensorFlow, where the sizes are read off the graph."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("a graph of TensorFlow")
    import tensorflow as tf

    length, layer = 2**14, LinearAttention(chunk_size=64)

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = ops.sum(layer(x, x, x, causal=True))
        return tape.gradient(total, x)

    spec = tf.TensorSpec([1, length, 1, 8], "float32")
    operations = gradient.get_concrete_function(spec).graph.get_operations()
    sizes = [output.shape.num_elements() for op in operations for output in op.outputs]
    known = [size for size in sizes if size is not None]
    assert len(known) > 0.8 * len(sizes) and max(known) <= 64 * length * 2


def test_random_features_come_close_to_the_softmax():
    """The error falls as 1 / sqrt(M); the mean of estimates is the kernel itself."""
    rng = np.random.default_rng(3)
    query, key = rng.normal(scale=0.4, size=(2, 1, T, 2, 64)).astype("float32")
    value = rng.normal(size=(1, T, 2, V)).astype("float32")
    expected = ops.convert_to_numpy(ScaledDotProductAttention()(query, key, value))
    errors = []
    for num_features in (64, 1024):
        found = [
            ops.convert_to_numpy(
                LinearAttention(PositiveRandomFeatures(num_features, seed))(query, key, value)
            )
            for seed in range(4)
        ]
        errors.append(np.mean([np.abs(each - expected).mean() for each in found]))
    assert errors[1] < 0.12 * np.abs(expected).mean()
    assert 2.5 < errors[0] / errors[1] < 6.5  # sqrt(1024 / 64) = 4


def test_the_kernel_is_unbiased():
    rng = np.random.default_rng(3)
    x, y = rng.normal(scale=0.7, size=(2, 1, 1, 1, K)).astype("float32")
    features = PositiveRandomFeatures(num_features=60_000, seed=1)
    estimate = ops.sum(features(x) * features(y))
    exact = np.exp((x * y).sum() / np.sqrt(K))
    np.testing.assert_allclose(ops.convert_to_numpy(estimate), exact, rtol=0.03)


def test_directions_are_orthogonal_by_blocks_with_the_norms_of_gaussian_vectors():
    features = PositiveRandomFeatures(num_features=500 * K + 2, seed=1)
    features.build((None, None, H, K))
    directions = ops.convert_to_numpy(features.directions)
    block = directions[:K]
    off_diagonal = (block @ block.T)[~np.eye(K, dtype=bool)]
    np.testing.assert_allclose(off_diagonal, 0, atol=1e-4)
    squares = (directions**2).sum(axis=1)  # chi-squared with K degrees: mean K, variance 2 K
    assert abs(squares.mean() - K) < 0.3 and abs(squares.var() - 2 * K) < 2.0
    np.testing.assert_allclose(directions.mean(axis=0), 0, atol=0.1)


def test_features_are_redrawn_on_request_alone(arrays):
    layer = make("performer")
    before = ops.convert_to_numpy(layer(*arrays))
    assert_equal(layer(*arrays), before)
    layer.feature_map.redraw()
    assert np.abs(ops.convert_to_numpy(layer(*arrays)) - before).max() > 1e-3


def test_the_seed_fixes_the_features():
    def directions(seed):
        features = PositiveRandomFeatures(8, seed=seed)
        features.build((None, None, H, K))
        return ops.convert_to_numpy(features.directions)

    np.testing.assert_array_equal(directions(1), directions(1))
    assert np.abs(directions(1) - directions(2)).max() > 0.1


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_huge_queries_and_keys_stay_finite(arrays, kind):
    query, key, value = arrays
    for causal in (False, True):
        context = make(kind)(1e4 * query, 1e4 * key, value, causal=causal)
        assert np.all(np.isfinite(ops.convert_to_numpy(context)))


def test_features_stay_above_zero_and_their_sums_finite():
    x = np.linspace(-60, 60, 25, dtype="float32").reshape(1, -1, 1, 1)
    features = ops.convert_to_numpy(EluFeatures()(x))
    expected = np.where(x > 0, x + 1, np.exp(np.maximum(x.astype("float64"), -40)))
    np.testing.assert_allclose(features, expected, rtol=1e-5)
    low = np.full((1, 3, 1, 4), -20, "float32")
    context = LinearAttention()(low, low, np.ones_like(low))
    assert_equal(context, np.ones(low.shape))
    # along a direction its feature is the largest there is
    layer = LinearAttention(PositiveRandomFeatures(16, seed=1))
    layer.build(*[(None, None, 1, 256)] * 3)
    direction = ops.convert_to_numpy(layer.feature_map.directions)[:1] * 256**0.25
    x = np.repeat(direction[None, :, None], 9, axis=1)
    assert_equal(layer(x, x, np.ones_like(x)), np.ones(x.shape), tolerance=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_nothing_in_gives_nothing(causal):
    for shape in ((B, 0, H, K), (0, T, H, K)):
        x = np.zeros(shape, "float32")
        assert tuple(LinearAttention()(x, x, x, causal=causal).shape) == shape


@pytest.mark.parametrize("kind", ["elu", "performer"])
def test_mixed_precision_comes_close(arrays, kind):
    context = make(kind, dtype="mixed_bfloat16")(*arrays, causal=True)
    assert ops.dtype(context) == "bfloat16"
    expected = ops.convert_to_numpy(make(kind)(*arrays, causal=True))
    assert_equal(context, expected, tolerance=0.05)


def test_what_it_cannot_honour_is_refused(arrays):
    with pytest.raises(ValueError, match=r"an attention_mask of shape \(23, 23\)"):
        LinearAttention()(*arrays, attention_mask=np.ones((T, T), bool))
    with pytest.raises(ValueError, match="return_attention_weights=True"):
        LinearAttention()(*arrays, return_attention_weights=True)
    query, key, value = arrays
    with pytest.raises(ValueError, match="Received: 23 queries, 19 keys. Leave causal out"):
        LinearAttention()(query, key[:, :S], value[:, :S], causal=True)
    with pytest.raises(ValueError, match=r"Received: value.shape=\(2, 19, 3, 5\)"):
        LinearAttention()(query, key, value[:, :S])
    with pytest.raises(ValueError, match="Received: chunk_size=0"):
        LinearAttention(chunk_size=0)
    with pytest.raises(ValueError, match="Received: num_features=0"):
        PositiveRandomFeatures(0)


@pytest.mark.parametrize(
    "width, deviation, num_features, stated",
    [(64, 0.4, 256, 0.18), (64, 0.4, 1024, 0.09), (32, 0.4, 256, 0.12), (32, 0.4, 1024, 0.06)],
)
def test_the_error_that_the_docstring_states(
    width, deviation, num_features, stated, record_property
):
    error = error_of_random_features(width, deviation, num_features)
    record_property(f"error of {num_features} random features, K = {width}", f"{error:.3f}")
    assert abs(error - stated) < 0.015


def test_of_large_queries_and_keys_the_error_is_larger_than_the_context():
    assert error_of_random_features(64, 1.0, 256) > 1


def error_of_random_features(width, deviation, num_features):
    """Norm of the difference to dense attention over the norm of that: the median of 4 draws."""
    errors = []
    for draw in range(4):
        rng = np.random.default_rng(draw)
        shape = (1, 256, 4, width)  # B, T, H, K
        query, key = (rng.normal(scale=deviation, size=shape).astype("float32") for _ in range(2))
        value = rng.normal(size=shape).astype("float32")
        performer = LinearAttention(PositiveRandomFeatures(num_features, seed=draw))
        exact, estimate = (
            ops.convert_to_numpy(layer(query, key, value))
            for layer in (ScaledDotProductAttention(), performer)
        )
        errors.append(np.linalg.norm(estimate - exact) / np.linalg.norm(exact))
    return float(np.median(errors))
