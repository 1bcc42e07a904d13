"""TensorFlow's own implementations against the portable ones: values, gradients, graphs."""

import keras
import numpy as np
import pytest

from keras_transformer.backend import portable

if keras.backend.backend() != "tensorflow":
    pytest.skip("needs the TensorFlow backend", allow_module_level=True)

import tensorflow as tf

from keras_transformer.backend import tensorflow as fast

V = 11


def arrays(dtype="float32", shape=(3, 5), seed=1):
    """Logits, labels and the factors that the loss of each token is multiplied by."""
    rng = np.random.default_rng(seed)
    logits = tf.cast(rng.normal(scale=3.0, size=(*shape, V)), dtype)
    labels = tf.constant(rng.integers(0, V, size=shape), "int32")
    return logits, labels, tf.constant(rng.uniform(size=shape), "float32")


def loss_and_gradient(function, logits, labels, factors, label_smoothing):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = function(logits, labels, label_smoothing)
        total = tf.reduce_sum(loss * factors)
    return loss, tape.gradient(total, logits)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(3, 5), (7,), (2, 3, 5)])
def test_cross_entropy_and_its_gradient(label_smoothing, shape):
    batch = arrays(shape=shape)
    loss, gradient = loss_and_gradient(fast.token_cross_entropy, *batch, label_smoothing)
    expected, expected_gradient = loss_and_gradient(
        portable.token_cross_entropy, *batch, label_smoothing
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-6)

    logits, labels, factors = (np.asarray(array) for array in batch)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    target = (1 - label_smoothing) * np.eye(V)[labels] + label_smoothing / V
    by_hand = (softmax - target) * factors[..., None]
    np.testing.assert_allclose(gradient, by_hand, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_cross_entropy_of_bfloat16(label_smoothing):
    batch = arrays("bfloat16")
    loss, gradient = loss_and_gradient(fast.token_cross_entropy, *batch, label_smoothing)
    expected, expected_gradient = loss_and_gradient(
        portable.token_cross_entropy, *batch, label_smoothing
    )
    assert loss.dtype == tf.float32 and gradient.dtype == tf.bfloat16
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
    gradient, expected_gradient = (tf.cast(x, "float32") for x in (gradient, expected_gradient))
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0.02, atol=0.005)


@pytest.mark.parametrize("id_type", ["int32", "int64"])
def test_cross_entropy_with_unknown_shapes_in_a_graph(id_type):
    signature = [
        tf.TensorSpec([None, None, V]),
        tf.TensorSpec([None, None], id_type),
        tf.TensorSpec([None, None]),
    ]

    @tf.function(input_signature=signature, autograph=False)
    def function(logits, labels, factors):
        return loss_and_gradient(fast.token_cross_entropy, logits, labels, factors, 0.1)

    for shape in ((3, 5), (1, 1), (0, 5)):
        logits, labels, factors = arrays(shape=shape)
        loss, gradient = function(logits, tf.cast(labels, id_type), factors)
        expected, expected_gradient = loss_and_gradient(
            portable.token_cross_entropy, logits, labels, factors, 0.1
        )
        np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-6)


LENGTHS = [29, 1, 0, 9, 8, 17, 3, 2, 5]


@pytest.mark.parametrize("num_hypotheses", [1, 3])
def test_one_graph_of_the_search_loop_serves_every_batch(journeys, num_hypotheses):
    """Unknown sizes, equal to the portable loop; a later call finds nothing of an earlier one."""
    steps = journeys(LENGTHS, num_hypotheses)

    def graph(implementation):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None], "int32"),
                tf.TensorSpec([None, 5]),
                tf.TensorSpec([None, 5]),
                tf.TensorSpec([], "int32"),
            ],
            autograph=False,
        )
        def run(lengths, states, topics, max_length):
            return steps.run(implementation, max_length, (lengths, states, topics))

        return run

    of_fast, of_portable = graph(fast), graph(portable)
    for lengths in (LENGTHS, [0, 0], [], [13], LENGTHS):
        arrays = journeys(lengths, num_hypotheses, seed=len(lengths)).arrays
        active, pushes = of_fast(*arrays, 31)
        expected_active, expected = of_portable(*arrays, 31)
        np.testing.assert_array_equal(active, expected_active)
        np.testing.assert_allclose(pushes, expected, rtol=1e-4, atol=1e-4)


def test_sentences_that_are_done_leave_and_a_cache_grows_as_it_must(journeys, monkeypatch):
    monkeypatch.setattr(fast, "CACHE_ROWS", 1)  # no implementation to spare
    seen = []

    def watch(step, state, cache):
        tensors = cache["states"], cache["history"]
        assert {len(tensor) for tensor in tensors} == {3 * len(state.active)}
        num_active = int(tf.math.count_nonzero(state.active))
        sizes = cache["states"].shape[1], cache["history"].shape[2]
        seen.append((int(step), len(state.active), num_active, sizes))

    journeys(LENGTHS, 3).run(fast, 31, watch=watch)
    assert [step for step, *_ in seen] == list(range(max(LENGTHS)))
    for step, num_sentences, num_active, (width, length) in seen:
        assert num_active == sum(step < length for length in LENGTHS)
        assert num_active > 3 * num_sentences / 4
        assert width == 5  # what has no positions does not grow
        assert step < length <= min(step + fast.CACHE_GROWTH, 31)
    assert len({num_sentences for _, num_sentences, *_ in seen}) > 3 and seen[-1][1] == 1
    assert len({length for *_, (_, length) in seen}) > 3


def test_few_rows_get_room_for_many_positions(journeys):
    lengths = []

    def watch(step, state, cache):
        lengths.append(int(cache["history"].shape[2]))

    journeys([29], 1).run(fast, 200, watch=watch)
    assert lengths == [fast.CACHE_ROWS] * 29


def test_the_most_steps_bound_the_cache(journeys):
    lengths = []
    journeys([3, 11, 10], 1).run(
        fast, 11, watch=lambda step, state, cache: lengths.append(cache["history"].shape[2])
    )
    assert len(lengths) == 11 and max(lengths) == 11


def test_determinism_is_enabled(monkeypatch):
    """A spy, for nothing turns it off again."""
    enabled = []
    monkeypatch.setattr(
        tf.config.experimental, "enable_op_determinism", lambda: enabled.append(True)
    )
    fast.enable_determinism()
    assert enabled == [True]


@pytest.mark.parametrize(
    ("rate", "rounded"),
    [
        (0.1, 26 / 256),
        (0.3, 77 / 256),
        (0.9, 230 / 256),
        (0.02, 0.02),
        (0.001, 0.001),
        (0.999, 0.999),
    ],
)
def test_dropout_rounds_rates_that_change_little_and_keeps_the_expectation(rate, rounded):
    x = tf.ones([1013, 211])
    output = fast.dropout(x, rate, keras.random.SeedGenerator(7)).numpy()
    kept = output != 0
    deviation = np.sqrt(rounded * (1 - rounded) / kept.size)
    assert abs(kept.mean() - (1 - rounded)) < 5 * deviation
    np.testing.assert_allclose(output[kept], 1 / (1 - rounded), rtol=1e-6)


def test_no_operation_of_xla_in_the_graph(journeys):
    """A server that compiles nothing must be able to run what decoding uses."""
    run = tf.function(lambda: journeys(LENGTHS, 3).run(fast, 31), autograph=False)
    definition = run.get_concrete_function().graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    names = {node.op for node in nodes}
    assert "InplaceUpdate" in names and not [name for name in names if "xla" in name.lower()]


def gradients(function, hidden, table, *arguments, **options):
    """Of three times the loss, to see that the factor reaches them."""
    with tf.GradientTape() as tape:
        tape.watch([hidden, table])
        loss = 3.0 * function(hidden, table, *arguments, training=True, **options).loss
    found = tape.gradient(loss, [hidden, table])
    return [tf.cast(gradient, "float32") for gradient in found]


def gradients_in_a_graph(*arguments, **options):
    """As a training step computes them."""
    return tf.function(gradients, autograph=False)(*arguments, **options)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 0.01)])
@pytest.mark.parametrize("num_tokens, label_smoothing", [(0, 0.1), (9, 0.0), (600, 0.1)])
def test_the_gradients_of_projected_cross_entropy(dtype, tolerance, num_tokens, label_smoothing):
    rng = np.random.default_rng(4)
    hidden = tf.cast(rng.normal(size=(num_tokens, 5)), dtype)
    table = tf.cast(rng.normal(size=(V, 5)), dtype)
    labels = tf.constant(rng.integers(0, V, size=num_tokens), "int32")
    weights = tf.where(labels == 0, 0.0, tf.constant(rng.uniform(size=num_tokens), "float32"))
    arguments = hidden, table, labels, weights, label_smoothing
    found = gradients_in_a_graph(fast.projected_cross_entropy, *arguments)
    expected = gradients(portable.projected_cross_entropy, *arguments)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert np.linalg.norm(one - other) <= tolerance * max(np.linalg.norm(other), 1e-6)


@pytest.mark.parametrize(
    "num_pairs, dtype, tolerance",
    [(0, "float32", 1e-6), (5, "float32", 1e-6), (300, "float32", 1e-6), (300, "bfloat16", 0.02)],
)
def test_the_gradients_of_r_drop(num_pairs, dtype, tolerance):
    """One prediction sure of the label, one not, and the label another token than the best."""
    rng = np.random.default_rng(4)
    hidden = tf.cast(2.0 * rng.normal(size=(2 * num_pairs, 5)), dtype)
    table = tf.cast(rng.normal(size=(V, 5)), dtype)
    labels = tf.constant(rng.integers(0, V, size=num_pairs).repeat(2), "int32")
    random = tf.constant(rng.uniform(size=num_pairs).repeat(2), "float32")
    arguments = hidden, table, labels, tf.where(labels == 0, 0.0, random), 0.1

    found = gradients_in_a_graph(fast.projected_cross_entropy, *arguments, r_drop=3.0)
    expected = gradients(portable.projected_cross_entropy, *arguments, r_drop=3.0)
    for one, other in zip(found, expected, strict=True):
        assert np.linalg.norm(one - other) <= tolerance * max(np.linalg.norm(other), 1e-6)


def exact_gradients(hidden, table, labels, weights, label_smoothing):
    """In float64, of the loss of these rounded numbers."""
    hidden, table, weights = (np.asarray(tf.cast(x, "float64")) for x in (hidden, table, weights))
    exponentials = np.exp(hidden @ table.T)
    softmax = exponentials / exponentials.sum(axis=-1, keepdims=True)
    target = (1 - label_smoothing) * np.eye(len(table))[labels] + label_smoothing / len(table)
    of_logits = weights[:, None] * (softmax - target)
    return of_logits @ table, of_logits.T @ hidden


@pytest.mark.parametrize(
    "dtype, loss_scale, label_smoothing", [("float16", 2.0**13, 0.1), ("bfloat16", 1.0, 0.0)]
)
def test_half_precision_is_as_exact_as_the_portable_one(dtype, loss_scale, label_smoothing):
    """Labels that the model is sure of (p = 0.996), in a batch of 25,000 tokens."""
    rng = np.random.default_rng(5)
    num_tokens, vocab_size, width = 300, 499, 128
    table = rng.normal(scale=width**-0.5, size=(vocab_size, width))
    labels = rng.integers(1, vocab_size, size=num_tokens).astype("int32")
    hidden = tf.cast(14 * table[labels] + rng.normal(scale=0.5, size=(num_tokens, width)), dtype)
    table = tf.cast(table, dtype)
    weights = np.full(num_tokens, 1 / 25_000, "float32")

    def scaled(function):
        def of_loss(*arguments, training):
            losses = function(*arguments, training=training)
            return losses._replace(loss=loss_scale * losses.loss)

        return of_loss

    arguments = hidden, table, labels, weights, label_smoothing
    both = [fast, portable]
    found, reference = (gradients(scaled(x.projected_cross_entropy), *arguments) for x in both)
    for exact, *both in zip(exact_gradients(*arguments), found, reference, strict=True):
        error, of_reference = (
            np.linalg.norm(x / (3 * loss_scale) - exact) / np.linalg.norm(exact) for x in both
        )
        assert of_reference < 0.03  # 0.026 on processors without products of bfloat16
        assert error < 1.25 * of_reference


def test_no_array_of_all_logits_is_made():
    num_tokens, vocab_size = 5 * fast.CHUNK_ROWS, 1000

    @tf.function(autograph=False)
    def run(hidden, table, labels, weights):
        with tf.GradientTape() as tape:
            tape.watch([hidden, table])
            loss = fast.projected_cross_entropy(hidden, table, labels, weights, 0.1, True).loss
        return tape.gradient(loss, [hidden, table])

    graph = run.get_concrete_function(
        tf.TensorSpec([num_tokens, 8]),
        tf.TensorSpec([vocab_size, 8]),
        tf.TensorSpec([num_tokens], tf.int32),
        tf.TensorSpec([num_tokens]),
    ).graph
    graphs = [graph, *(g for g in graph._functions.values() if hasattr(g, "graph"))]
    graphs = [getattr(g, "graph", g) for g in graphs]
    shapes = [out.shape for g in graphs for op in g.get_operations() for out in op.outputs]
    assert any(shape.rank == 2 and shape[-1] == vocab_size for shape in shapes)  # a chunk's
    assert not any(
        shape.rank == 2 and shape.as_list() == [num_tokens, vocab_size] for shape in shapes
    )
