"""The reference implementations against NumPy, on whichever backend runs."""

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_transformer import backend
from keras_transformer.backend import portable


def cross_entropy_loop(logits, labels, label_smoothing):
    """-sum_v q(v) log p(v) with q = (1 - smoothing) one-hot + smoothing / V, token by token."""
    losses = np.zeros(labels.shape)
    for index in np.ndindex(labels.shape):
        scores = logits[index].astype("float64")
        exponentials = np.exp(scores - scores.max())
        log_probs = np.log(exponentials / exponentials.sum())
        for v in range(logits.shape[-1]):
            target = (1 - label_smoothing) * (v == labels[index])
            target += label_smoothing / logits.shape[-1]
            losses[index] -= target * log_probs[v]
    return losses


@pytest.mark.parametrize("implementation", [portable, backend])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_cross_entropy_equals_the_loop(implementation, label_smoothing):
    rng = np.random.default_rng(1)
    for shape in ((2, 5), (7,), (2, 3, 5), (0, 5)):
        logits = rng.normal(scale=3.0, size=(*shape, 11)).astype("float32")
        labels = rng.integers(0, 11, size=shape).astype("int32")
        loss = implementation.token_cross_entropy(
            ops.convert_to_tensor(logits), ops.convert_to_tensor(labels), label_smoothing
        )
        assert ops.dtype(loss) == "float32"
        expected = cross_entropy_loop(logits, labels, label_smoothing)
        np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", [portable, backend])
def test_cross_entropy_of_extreme_logits(implementation):
    logits = ops.convert_to_tensor([[1e4, -1e4, 0.0], [1e4, -1e4, 0.0]])
    labels = ops.convert_to_tensor(np.array([0, 1], "int32"))
    loss = ops.convert_to_numpy(implementation.token_cross_entropy(logits, labels))
    np.testing.assert_allclose(loss, [0.0, 2e4], rtol=1e-6)


@pytest.mark.parametrize("implementation", [portable, backend])
def test_cross_entropy_of_bfloat16_is_computed_in_float32(implementation):
    rng = np.random.default_rng(2)
    logits = ops.cast(rng.normal(scale=3.0, size=(3, 5, 11)), "bfloat16")
    labels = rng.integers(0, 11, size=(3, 5)).astype("int32")
    loss = implementation.token_cross_entropy(logits, ops.convert_to_tensor(labels), 0.1)
    assert ops.dtype(loss) == "float32"
    rounded = ops.convert_to_numpy(ops.cast(logits, "float32"))
    expected = cross_entropy_loop(rounded, labels, 0.1)
    np.testing.assert_allclose(ops.convert_to_numpy(loss), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", [portable, backend])
def test_a_cache_starts_with_zeros(implementation):
    for dtype in ("float32", "bfloat16"):
        cache = implementation.start_cache(3, 2, 5, 7, dtype)
        assert ops.dtype(cache) == dtype and tuple(cache.shape) == (3, 2, 5, 7)
        assert not np.any(ops.convert_to_numpy(ops.cast(cache, "float32")))


@pytest.mark.parametrize("implementation", [portable, backend])
def test_cache_update_replaces_one_position(implementation):
    rng = np.random.default_rng(3)
    expected = [rng.normal(size=shape).astype("float32") for shape in ((3, 2, 5, 7), (3, 2, 5, 11))]
    caches = [ops.convert_to_tensor(cache.copy()) for cache in expected]
    for step in (0, 3, 4):
        values = [rng.normal(size=(3, 2, width)).astype("float32") for width in (7, 11)]
        for cache, value in zip(expected, values, strict=True):
            cache[:, :, step] = value
        step = ops.convert_to_tensor(step, "int32")
        place = implementation.cache_position(caches[0], step)
        caches = implementation.cache_update(
            caches, place, list(map(ops.convert_to_tensor, values))
        )
        for found, cache in zip(caches, expected, strict=True):
            np.testing.assert_array_equal(ops.convert_to_numpy(found), cache)


@pytest.mark.parametrize("implementation", [portable, backend])
def test_cache_update_changes_no_other_cache(implementation):
    """Of one shape and one value, which a graph's optimization may take for one tensor."""

    def run(factor):
        first, second = (implementation.start_cache(3, 2, 5, 7, "float32") for _ in range(2))
        values = ops.full((3, 2, 7), factor)
        [first] = implementation.cache_update(
            [first], implementation.cache_position(first, 1), [values]
        )
        [second] = implementation.cache_update(
            [second], implementation.cache_position(second, 3), [2 * values]
        )
        return first, second, implementation.start_cache(3, 2, 5, 7, "float32")

    compiled = backend.compile_function(run)
    for factor in (1.0, 5.0):  # the second call finds zeros again
        found = map(ops.convert_to_numpy, compiled(ops.convert_to_tensor(factor)))
        for cache, of_positions in zip(
            found,
            ([0, factor, 0, 0, 0], [0, 0, 0, 2 * factor, 0], [0, 0, 0, 0, 0]),
            strict=True,
        ):
            expected = np.broadcast_to(np.array(of_positions)[:, None], (3, 2, 5, 7))
            np.testing.assert_array_equal(cache, expected)


@pytest.mark.parametrize("implementation", [portable, backend])
def test_take_rows(implementation):
    values = np.random.default_rng(4).normal(size=(5, 3, 2)).astype("float32")
    for indices in (np.array([4, 0, 4]), np.array([[1], [3]]), np.zeros((0, 2))):
        indices = indices.astype("int32")
        found = implementation.take_rows(
            ops.convert_to_tensor(values), ops.convert_to_tensor(indices)
        )
        np.testing.assert_array_equal(ops.convert_to_numpy(found), values[indices])
    found = implementation.take_rows(ops.convert_to_tensor(values[:0]), np.zeros((0, 2), "int32"))
    assert tuple(found.shape) == (0, 2, 3, 2)


@pytest.mark.parametrize("implementation", [portable, backend])
@pytest.mark.parametrize("tail", [(), (2,)], ids=str)
def test_take_entries_follows_each_row(implementation, tail):
    values = np.random.default_rng(1).normal(size=(3, 5, *tail)).astype("float32")
    indices = np.array([[4, 0], [1, 1], [2, 3]], "int32")
    expected = np.stack([row[places] for row, places in zip(values, indices, strict=True)])
    found = implementation.batch_gather(
        ops.convert_to_tensor(values), ops.convert_to_tensor(indices)
    )
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


@pytest.mark.parametrize("implementation", [portable, backend])
@pytest.mark.parametrize("num_hypotheses", [1, 3])
@pytest.mark.parametrize(
    "lengths",
    [[29, 1, 0, 9, 8, 17, 3], [1] * 7 + [26], [11] * 5, [0, 0], [2], [16, 17], []],
    ids=str,
)
def test_search_loop_equals_the_loop(journeys, implementation, num_hypotheses, lengths):
    """Sentences of very different lengths, some of nothing; a cache that grows several times."""
    journey = journeys(lengths, num_hypotheses)
    active, pushes = journey.run(implementation, max_length=31)
    assert not np.any(ops.convert_to_numpy(active))
    expected = journey.pushes_by_loops()
    np.testing.assert_allclose(ops.convert_to_numpy(pushes), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("max_length", [3, 17])
def test_search_loop_up_to_the_most_steps(journeys, max_length):
    journey = journeys([max_length, 2, max_length], 3)
    _, pushes = journey.run(backend, max_length)
    expected = journey.pushes_by_loops()
    np.testing.assert_allclose(ops.convert_to_numpy(pushes), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("implementation", [portable, backend])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_in_expectation(implementation, rate):
    x = np.random.default_rng(5).uniform(1.0, 2.0, size=(199, 211)).astype("float32")
    seed = keras.random.SeedGenerator(7)
    output = ops.convert_to_numpy(implementation.dropout(ops.convert_to_tensor(x), rate, seed))
    kept = output != 0
    assert abs(kept.mean() - (1 - rate)) < 0.01
    scale = output[kept] / x[kept]
    np.testing.assert_allclose(scale, scale[0], rtol=1e-5)
    assert abs(output.mean() - x.mean()) < 0.02


def test_the_dropout_of_a_step_is_that_of_a_training_that_goes_on_there():
    x, seed = ops.ones((99,)), keras.random.SeedGenerator()

    def mask(step):
        backend.seed_step(7, step)
        return ops.convert_to_numpy(backend.dropout(x, 0.5, seed))

    first, saved = mask(1), np.array(seed.state)
    second, _ = mask(2), mask(3)
    seed.state.assign(saved)
    np.testing.assert_array_equal(mask(2), second)
    assert np.any(first != second)


def test_a_compiled_function_gives_the_same():
    x = np.random.default_rng(6).normal(size=(3, 5)).astype("float32")
    function = backend.compile_function(lambda x, y: (ops.matmul(x, ops.transpose(x)), [y + 1]))
    for length in (5, 2):  # one function for every shape
        part = ops.convert_to_tensor(x[:, :length])
        product, (number,) = function(part, ops.convert_to_tensor(3, "int32"))
        expected = x[:, :length] @ x[:, :length].T
        np.testing.assert_allclose(ops.convert_to_numpy(product), expected, rtol=1e-5, atol=1e-5)
        assert int(number) == 4


def test_a_compiled_function_reads_its_variables_anew():
    factor = keras.Variable(2.0)
    function = backend.compile_function(lambda x: x * factor, [factor])
    x = ops.convert_to_tensor([3.0, 5.0])
    for value in (2.0, 7.0):
        factor.assign(value)
        np.testing.assert_allclose(ops.convert_to_numpy(function(x)), [3 * value, 5 * value])


def test_every_backend_offers_the_same_names():
    for name in backend.__all__:
        assert callable(getattr(backend, name)) and callable(getattr(portable, name))


def projected(label_smoothing, num_tokens=9, dtype="float32", seed=3):
    """Arguments of `projected_cross_entropy`, some of whose tokens count nowhere."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(num_tokens, 5)).astype("float32")
    table = rng.normal(size=(11, 5)).astype("float32")
    labels = rng.integers(1, 11, size=num_tokens).astype("int32")
    weights = rng.uniform(0.5, 1.5, size=num_tokens).astype("float32")
    labels[::3], weights[::3] = 0, 0.0
    weights[1:2] = 0.0  # a real token that the loss leaves out, but metrics do not
    hidden, table = (ops.cast(ops.convert_to_tensor(x), dtype) for x in (hidden, table))
    return hidden, table, *map(ops.convert_to_tensor, (labels, weights)), label_smoothing


@pytest.mark.parametrize("implementation", [portable, backend])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("num_tokens", [0, 1, 9, 600])  # 600: more than two chunks
def test_projected_cross_entropy_equals_the_loop(
    implementation, training, label_smoothing, num_tokens
):
    arguments = projected(label_smoothing, num_tokens)
    losses = implementation.projected_cross_entropy(*arguments, training)
    hidden, table, labels, weights = map(ops.convert_to_numpy, arguments[:4])
    logits = hidden @ table.T
    smoothed = cross_entropy_loop(logits, labels, label_smoothing)
    assert float(losses.loss) == pytest.approx(np.sum(weights * smoothed), rel=1e-5, abs=1e-6)
    counted = (labels != 0) | (weights != 0)
    cross_entropy = ops.convert_to_numpy(losses.cross_entropy)
    expected = cross_entropy_loop(logits, labels, 0.0)
    np.testing.assert_allclose(cross_entropy[counted], expected[counted], rtol=1e-4, atol=1e-5)
    correct = ops.convert_to_numpy(losses.correct)
    expected = [logits[i].argmax() == labels[i] for i in range(num_tokens)]
    np.testing.assert_array_equal(correct[counted], np.array(expected, "float32")[counted])


@pytest.mark.parametrize("implementation", [portable, backend])
@pytest.mark.parametrize("num_pairs", [0, 1, 9, 300])
def test_r_drop_adds_the_divergences_of_the_paper(implementation, num_pairs):
    """Liang et al., 2021, eq. 3: the mean of KL(p || q) and KL(q || p), weighted by alpha."""
    hidden, table, labels, weights, smoothing = projected(0.1, 2 * num_pairs)
    labels, weights = (
        ops.convert_to_tensor(np.repeat(ops.convert_to_numpy(x)[::2], 2)) for x in (labels, weights)
    )
    arguments = hidden, table, labels, weights, smoothing, True
    without, with_it = (
        implementation.projected_cross_entropy(*arguments, r_drop=r) for r in (0.0, 3.0)
    )
    expected = 0.0
    logits = ops.convert_to_numpy(hidden) @ ops.convert_to_numpy(table).T
    for first, second, weight in zip(
        logits[::2], logits[1::2], ops.convert_to_numpy(weights)[::2], strict=True
    ):
        p, q = (np.exp(x) / np.exp(x).sum() for x in (first, second))
        divergences = (p * np.log(p / q)).sum(), (q * np.log(q / p)).sum()
        expected += 3.0 * weight * np.mean(divergences)
    found = float(with_it.loss) - float(without.loss)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    for name in ("cross_entropy", "correct"):
        one, other = (ops.convert_to_numpy(getattr(x, name)) for x in (without, with_it))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("implementation", [portable, backend])
def test_projected_cross_entropy_of_extreme_logits(implementation):
    hidden = ops.convert_to_tensor(np.array([[1e3], [1e3]], "float32"))
    table = ops.convert_to_tensor(np.array([[10.0], [-10.0], [0.0]], "float32"))
    labels, weights = np.array([0, 1], "int32"), np.ones(2, "float32")
    losses = implementation.projected_cross_entropy(
        hidden, table, ops.convert_to_tensor(labels), ops.convert_to_tensor(weights)
    )
    np.testing.assert_allclose(ops.convert_to_numpy(losses.cross_entropy), [0.0, 2e4], rtol=1e-6)
    assert float(losses.loss) == pytest.approx(2e4)


@pytest.mark.parametrize("length", [5, 4, 1, 0])
@pytest.mark.parametrize("implementation", [portable, backend])
def test_a_linear_recurrence_equals_the_loop(implementation, length):
    rng = np.random.default_rng(3)
    decay, added = rng.uniform(size=(2, 3, length, 2)).astype("float32")
    state, expected = np.zeros((3, 2)), np.zeros((3, length, 2))
    for t in range(length):
        expected[:, t] = state = decay[:, t] * state + added[:, t]
    found = implementation.linear_recurrence(*map(ops.convert_to_tensor, (decay, added)))
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [5, 1, 0])
@pytest.mark.parametrize("implementation", [portable, backend])
def test_scan_equals_the_loop(implementation, length):
    """Nested inputs and carries of several shapes; the outputs have those of the carry."""
    rng = np.random.default_rng(3)
    inputs = {"a": rng.normal(size=(length, 2, 3)), "b": rng.normal(size=(length, 2, 1))}
    first = [rng.normal(size=(2, 3)), rng.normal(size=(2, 1))]

    def step(carry, inputs):
        sums, total = carry
        carry = [ops.tanh(sums + inputs["a"] * total), total + inputs["b"]]
        return carry, [2.0 * carry[0], carry[1]]

    def run(first, inputs):
        return implementation.scan(step, first, inputs)

    tensors = tree.map_structure(lambda x: ops.convert_to_tensor(x, "float32"), (first, inputs))
    carry, outputs = tree.map_structure(ops.convert_to_numpy, run(*tensors))
    (sums, total), expected = first, [[], []]
    for a, b in zip(inputs["a"], inputs["b"], strict=True):
        sums, total = np.tanh(sums + a * total), total + b
        expected[0].append(2.0 * sums)
        expected[1].append(total)
    for output, rows, width in zip(outputs, expected, (3, 1), strict=True):
        assert output.shape == (length, 2, width)
        np.testing.assert_allclose(output, np.reshape(rows, output.shape), rtol=1e-5, atol=1e-6)
    for found, last in zip(carry, (sums, total), strict=True):
        np.testing.assert_allclose(found, last, rtol=1e-5, atol=1e-6)
