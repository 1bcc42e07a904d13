import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from keras import ops

from keras_transformer import backend, decoding
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode, decode_sampled
from keras_transformer.layers import DecodingState
from keras_transformer.models import Transformer
from keras_transformer.special_ids import shift_right
from tests.decoding.conftest import assert_same_parts, padded_sources, parts

END = 3
LENGTHS = [5, 1, 11, 2, 7]


class Forced(NamedTuple):
    """Logits of the steps so far."""

    active: Any
    logits: Any


def settings(beam_size=4, length_penalty=0.6, max_length=256):
    return DecodingConfig(beam_size=beam_size, length_penalty=length_penalty, max_length=max_length)


@pytest.fixture(scope="module")
def source_ids():
    return padded_sources(LENGTHS, 29)


@pytest.fixture(scope="module")
def model(source_ids):
    model = Transformer(29, num_layers=1, d_model=12, ff_dim=20, num_heads=2, normalize_first=True)
    model.build()
    # Weights larger than those a model starts with, until some outputs end by themselves, not all.
    search = decode_compiled(model, settings(1))
    for seed in itertools.count(40):
        rng = np.random.default_rng(seed)
        model.set_weights([rng.normal(size=w.shape, scale=0.4) for w in model.get_weights()])
        _, _, lengths, finished = search(source_ids)
        if 0 < finished.sum() < 5 and len(set(lengths[:, 0])) > 2:
            return model


def score(model, source_ids, labels, length_penalty=0.6):
    """Returns the scores of forced decoding."""
    labels = ops.convert_to_tensor(labels)
    logits = model({"source_ids": source_ids, "target_ids": shift_right(labels, ops)})
    return decoding.score(logits, labels, length_penalty)


@functools.cache
def decode_compiled(model, config, n_best=1):
    """Returns `decode` as a function of the source, whose answer is NumPy arrays."""
    compiled = backend.compile_function(
        lambda ids: decode(model, ids, config, n_best), model.weights
    )
    return lambda ids: parts(compiled(ops.convert_to_tensor(ids)))


def test_steps_with_the_cache_give_the_logits_of_a_whole_pass(model, source_ids):
    """More steps than a cache begins with, and sentences that leave long before others."""
    lengths = np.array([19, 3, 1, 7, 12], "int32")
    target_ids = np.random.default_rng(6).integers(4, 29, size=(5, 3, 19)).astype("int32")
    target_ids[..., 0] = 2
    whole = [model({"source_ids": source_ids, "target_ids": target_ids[:, n]}) for n in range(3)]
    whole = np.stack([ops.convert_to_numpy(logits) for logits in whole], axis=1)  # (B, N, T, V)

    def forced(source_ids, target_ids, lengths):
        step_fn, start, *_ = model.start_decoding(source_ids, 19, 3)

        def body(step, state, cache, memory):
            active, all_logits = state
            token_ids = ops.take(memory["target_ids"], step, axis=2)
            logits, after = step_fn(token_ids, step, DecodingState(cache, memory["model"]))
            here = (ops.arange(19) == step)[:, None] & active[:, None, None, None]
            all_logits = ops.where(here, logits[:, :, None], all_logits)
            return Forced(active & (step + 1 < memory["lengths"]), all_logits), after.cache

        state = Forced(lengths > 0, ops.zeros((ops.shape(lengths)[0], 3, 19, 29)))
        memory = {"model": start.memory, "lengths": lengths, "target_ids": target_ids}
        return backend.search_loop(body, state, start.cache, memory, 3, 19).logits

    arguments = map(ops.convert_to_tensor, (source_ids, target_ids, lengths))
    logits = ops.convert_to_numpy(backend.compile_function(forced)(*arguments))
    for b, length in enumerate(lengths):
        expected = whole[b, :, :length]
        np.testing.assert_allclose(logits[b, :, :length], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("beam_size,n_best", [(1, 1), (4, 3)])
def test_a_sentence_does_not_depend_on_its_neighbours(model, source_ids, beam_size, n_best):
    search = decode_compiled(model, settings(beam_size), n_best)
    together = search(source_ids)
    assert together[0].shape == (5, n_best, 36)
    for b, length in enumerate(LENGTHS):
        of_this = [part[b : b + 1] for part in together]
        assert np.all(of_this[2] <= 2 * length + 10)
        assert_same_parts(search(source_ids[b : b + 1]), of_this)
    short = slice(1, 4, 2)  # eagerly
    found = parts(decode(model, source_ids[short], settings(beam_size), n_best))
    assert_same_parts(found, [part[short] for part in together])
    without_padding = search(source_ids[:1, : LENGTHS[0] + 1])
    assert without_padding[0].shape == (1, n_best, 2 * (LENGTHS[0] + 1) + 10)
    assert_same_parts(without_padding, [part[:1] for part in together])


@pytest.mark.parametrize("max_length", [2, 17])
def test_the_scores_are_those_of_forced_decoding(model, source_ids, max_length):
    config = settings(4, 0.9, max_length)
    ids, scores, _, finished = parts(decode(model, source_ids, config, 3))
    assert ids.shape == (5, 3, max_length) and finished.any()
    assert max_length > 2 or not finished.all()
    for n in range(3):
        forced = score(model, source_ids, ids[:, n], 0.9)
        np.testing.assert_allclose(ops.convert_to_numpy(forced), scores[:, n], rtol=1e-4, atol=1e-4)


def test_the_score_of_greedy_search_has_the_length_penalty_that_is_set(model, source_ids):
    ids, scores, *_ = parts(decode(model, source_ids, settings(1, 1.7, 17)))
    forced = ops.convert_to_numpy(score(model, source_ids, ids[:, 0], 1.7))
    np.testing.assert_allclose(forced, scores[:, 0], rtol=1e-4, atol=1e-4)


def test_forced_decoding_sums_over_the_real_pieces(model, source_ids):
    labels = np.array([[7, 5, END, 0], [4, END, 0, 0]], "int32")
    pair = source_ids[:2]
    target_ids = np.array([[2, 7, 5], [2, 4, 0]])
    logits = ops.convert_to_numpy(model({"source_ids": pair, "target_ids": target_ids}))
    log_probs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    sums = [
        log_probs[0, [0, 1, 2], [7, 5, END]].sum() / ((5 + 3) / 6) ** 0.6,
        log_probs[1, [0, 1], [4, END]].sum() / ((5 + 2) / 6) ** 0.6,
    ]
    found = ops.convert_to_numpy(score(model, pair, labels))
    np.testing.assert_allclose(found, sums, rtol=1e-4, atol=1e-4)
    found = decoding.score(logits, labels[:, :3], 2.0, length_normalization="length")
    expected = [sums[0] * (8 / 6) ** 0.6 / 3**2, sums[1] * (7 / 6) ** 0.6 / 2**2]
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-4, atol=1e-4)
    for form in ("gnmt", "length"):
        nothing = decoding.score(logits, np.zeros((2, 3), "int32"), 0.6, form)
        np.testing.assert_array_equal(ops.convert_to_numpy(nothing), [0, 0])


def test_sampling_with_a_model(model, source_ids):
    greedy = parts(decode(model, source_ids, settings(1, max_length=9)))
    narrow = decode_sampled(model, source_ids, settings(max_length=9), top_k=1, seed=9)
    assert_same_parts(parts(narrow), greedy)
    config = settings(length_penalty=0.3, max_length=9)
    ids, scores, _, _ = parts(decode_sampled(model, source_ids, config, 1.5, 7, 0.9, seed=9))
    assert np.any(ids != greedy[0])
    forced = ops.convert_to_numpy(score(model, source_ids, ids[:, 0], 0.3))
    np.testing.assert_allclose(forced, scores[:, 0], rtol=1e-4, atol=1e-4)
