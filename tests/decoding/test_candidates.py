import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.candidates import (
    best_continuation,
    best_continuations,
    largest,
)

# below the size where blocks pay, a multiple of a block size, and a prime that needs filling up
VOCAB_SIZES = [11, 1000, 1009]


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
@pytest.mark.parametrize("k", [1, 2, 7])
def test_largest_is_a_sort(vocab_size, k):
    values = np.random.default_rng(vocab_size).normal(size=(13, vocab_size)).astype("float32")
    values[5] -= 1e9  # filling up must not win over the smallest
    values[3, : vocab_size // 2] = -1e30
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    found, ids = (ops.convert_to_numpy(part) for part in largest(values, k))
    np.testing.assert_array_equal(found, np.take_along_axis(values, order, axis=1))
    np.testing.assert_array_equal(found, np.take_along_axis(values, ids, axis=1))
    assert all(len(set(row)) == k for row in ids)


def continuations_by_sorting(logits, log_probs):
    """Returns of each sentence all allowed `(log_prob, parent, token)`, the best first."""
    exact = logits.astype("float64")
    exact -= exact.max(axis=-1, keepdims=True)
    exact -= np.log(np.sum(np.exp(exact), axis=-1, keepdims=True))
    sums = exact + log_probs[..., None]
    return [
        sorted(((total[n, v], n, v) for n, v in np.ndindex(total.shape) if v >= 3), reverse=True)
        for total in sums
    ]


def assert_best(logits, log_probs, num_best):
    arrays = [ops.convert_to_tensor(x) for x in (logits, log_probs)]
    find = functools.partial(best_continuations, num_best=num_best)
    if keras.backend.backend() == "jax":  # which compiles each operation alone otherwise
        find = backend.compile_function(find)
    found = [ops.convert_to_numpy(part) for part in find(*arrays)]
    assert [part.shape for part in found] == [(len(logits), num_best)] * 3
    assert [part.dtype for part in found] == ["float32", "int32", "int32"]
    for b, expected in enumerate(continuations_by_sorting(logits, log_probs)):
        totals, parents, tokens = zip(*expected[:num_best], strict=True)
        np.testing.assert_array_equal(found[1][b], parents)
        np.testing.assert_array_equal(found[2][b], tokens)
        np.testing.assert_allclose(found[0][b], totals, rtol=1e-5, atol=1e-5)
    if logits.shape[1] == num_best == 1:  # greedy search has a shorter way to the same
        log_prob, token = map(ops.convert_to_numpy, best_continuation(arrays[0][:, 0]))
        assert log_prob.dtype == "float32" and token.dtype == "int32"
        np.testing.assert_array_equal(token, found[2])
        np.testing.assert_allclose(log_prob + log_probs, found[0], rtol=1e-5, atol=1e-5)


# the last two: one block that is full, and one token that is allowed
@pytest.mark.parametrize("vocab_size", [*VOCAB_SIZES, 64, 4])
@pytest.mark.parametrize(
    "num_hypotheses,num_best", [(1, 1), (3, 1), (3, 3), (4, 2), (1, 7), (2, 9)]
)
def test_best_continuations_are_a_sort_of_all(vocab_size, num_hypotheses, num_best):
    num_best = min(num_best, num_hypotheses * (vocab_size - 3))
    rng = np.random.default_rng(vocab_size)
    logits = rng.normal(scale=5.0, size=(5, num_hypotheses, vocab_size)).astype("float32")
    log_probs = -rng.uniform(0, 20, size=(5, num_hypotheses)).astype("float32")
    log_probs[0] = 0.0
    log_probs[1, 1:] = -90.0  # all the best continue one hypothesis
    logits[2, -1] += np.linspace(0, 50, vocab_size, dtype="float32")  # they stand in one block
    logits[3, :, -1] += 60.0  # the last token of all
    assert_best(logits, log_probs, num_best)


@pytest.mark.parametrize("vocab_size", [*VOCAB_SIZES, 4])
@pytest.mark.parametrize("num_hypotheses", [1, 3])
def test_forbidden_tokens_count_in_the_softmax_alone(vocab_size, num_hypotheses):
    rng = np.random.default_rng(7)
    logits = rng.normal(scale=3.0, size=(4, num_hypotheses, vocab_size)).astype("float32")
    logits[0, :, :3] = 30, 40, 35  # all of them the most probable, in every hypothesis
    logits[1, :, 2] = 25
    logits[2, 0, :3] = 20
    log_probs = -rng.uniform(size=(4, num_hypotheses)).astype("float32")
    assert_best(logits, log_probs, num_hypotheses)


def test_large_logits_cost_no_precision():
    logits = np.random.default_rng(9).normal(size=(5, 3, 1000)).astype("float32")
    assert_best(logits + np.float32(1e4), np.zeros((5, 3), "float32"), 3)
    assert_best(logits - np.float32(1e4), np.zeros((5, 3), "float32"), 3)


@pytest.mark.parametrize("vocab_size", [*VOCAB_SIZES, 4])
def test_an_impossible_hypothesis_is_continued_last(vocab_size):
    rng = np.random.default_rng(8)
    logits = rng.normal(size=(2, 5, vocab_size)).astype("float32")
    logits[:, :, 1] = 9.0
    log_probs = np.full((2, 5), -1e9, "float32")
    log_probs[:, 2] = -3.0
    num_best = min(5, vocab_size - 3)
    assert_best(logits, log_probs, num_best)
    arrays = map(ops.convert_to_tensor, (logits, log_probs))
    totals, parents, tokens = map(ops.convert_to_numpy, best_continuations(*arrays, 5))
    assert np.all(parents[:, :num_best] == 2)
    assert np.all(np.abs(totals[:, num_best:] + 1e9) < 1e3)  # below all others, and finite
    assert np.all((0 <= parents) & (parents < 5) & (0 <= tokens) & (tokens < vocab_size))


@pytest.mark.parametrize("vocab_size", [*VOCAB_SIZES, 17])
@pytest.mark.parametrize("num_forbidden", [0, 3])
def test_tokens_of_what_is_no_number_are_in_the_vocabulary(vocab_size, num_forbidden):
    """So that the next step can read them, and the caller can say what was wrong."""
    logits = ops.convert_to_tensor(np.full((2, 1, vocab_size), np.nan, "float32"))
    for num_best in (1, 3):
        _, parents, tokens = best_continuations(logits, ops.zeros((2, 1)), num_best, num_forbidden)
        tokens, parents = map(ops.convert_to_numpy, (tokens, parents))
        assert np.all((0 <= tokens) & (tokens < vocab_size)) and not parents.any()
    log_probs, tokens = map(ops.convert_to_numpy, best_continuation(logits[:, 0], num_forbidden))
    assert np.all((0 <= tokens) & (tokens < vocab_size)) and not np.isfinite(log_probs).any()
