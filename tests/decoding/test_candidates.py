import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding.candidates import candidate_tokens, largest, take_entries

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


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_candidates_are_the_best_allowed_tokens_of_the_whole_softmax(vocab_size):
    logits = np.random.default_rng(7).normal(size=(5, vocab_size)).astype("float32") * 9
    logits[0, :3] = 50, 60, 70  # all forbidden ones on top
    logits[1, 2] = 40
    logits[2] += 1e4
    exact = logits.astype("float64") - logits.max(axis=1, keepdims=True)
    log_probs = exact - np.log(np.sum(np.exp(exact), axis=1, keepdims=True))
    best = np.argsort(-logits[:, 3:], axis=1)[:, :4] + 3
    ids, found = (ops.convert_to_numpy(part) for part in candidate_tokens(logits, 4))
    order = np.argsort(-found, axis=1)[:, :4]
    np.testing.assert_array_equal(np.take_along_axis(ids, order, axis=1), best)
    np.testing.assert_allclose(
        np.take_along_axis(found, order, axis=1),
        np.take_along_axis(log_probs, best, axis=1),
        rtol=1e-5,
        atol=1e-5,
    )
    assert np.all(found[ids < 3] == -1e9)


def test_take_entries_follows_each_row():
    values = np.random.default_rng(1).normal(size=(3, 5, 2)).astype("float32")
    indices = np.array([[4, 0], [1, 1], [2, 3]], "int32")
    expected = np.take_along_axis(values, indices[..., None], axis=1)
    found = take_entries(ops.convert_to_tensor(values), ops.convert_to_tensor(indices))
    np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
