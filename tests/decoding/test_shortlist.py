"""Searches that choose from a shortlist."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import (
    Shortlist,
    beam_search,
    decode,
    decode_sampled,
)
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.models import RnnSeq2Seq, Transformer
from tests.decoding.conftest import assert_same_parts, padded_sources, parts

V, END, MAX_LENGTH = 211, 3, 8
LENGTHS = [6, 1, 12, 3]
SIZES = dict(num_layers=1, d_model=12, dropout=0.0)
MODELS = {
    "tied": lambda: Transformer(V, **SIZES, ff_dim=20, num_heads=2),
    "untied": lambda: Transformer(V, **SIZES, ff_dim=20, num_heads=2, tie_output=False),
    "rnn": lambda: RnnSeq2Seq(V, **SIZES, units=10),
}


@pytest.fixture(scope="module")
def source_ids():
    return padded_sources(LENGTHS, V)


@pytest.fixture(scope="module")
def candidates():
    """Of each sentence: some tokens, of which some are there twice, or hardly any."""
    rng = np.random.default_rng(6)
    rows = rng.integers(0, V, size=(4, 140)).astype("int32")
    rows[1, 2:] = 0
    rows[2, 70:] = rows[2, :70]
    return rows


@pytest.fixture(scope="module")
def make_model(source_ids, candidates):
    return functools.cache(lambda name: _make_model(MODELS[name](), source_ids, candidates))


@pytest.fixture(scope="module")
def model(make_model):
    return make_model("tied")


def _make_model(model, source_ids, candidates):
    model.build()
    for seed in range(40, 60):  # until some outputs end by themselves
        rng = np.random.default_rng(seed)
        model.set_weights([rng.normal(size=w.shape, scale=0.5) for w in model.get_weights()])
        lengths = search_eagerly(model, source_ids, candidates, settings(1))[2]
        if lengths.min() < MAX_LENGTH - 3 and len(set(lengths[:, 0])) > 1:
            return model
    pytest.fail("no weights with which some outputs end by themselves")


def settings(beam_size, **others):
    return DecodingConfig(beam_size=beam_size, max_length=MAX_LENGTH, **others)


def search(model, source_ids, candidates, config, n_best=1):
    """Searches with a shortlist, in a compiled function."""

    def find(ids, candidates):
        return decode(model, ids, config, n_best, shortlist=Shortlist.of(candidates, V))

    compiled = backend.compile_function(find, model.weights)
    return parts(compiled(*map(ops.convert_to_tensor, (source_ids, candidates))))


def search_eagerly(model, source_ids, candidates, config, n_best=1):
    """The same without compiling it, which takes a second; JAX would compile each operation."""
    if keras.backend.backend() == "jax":
        return search(model, source_ids, candidates, config, n_best)
    shortlist = Shortlist.of(ops.convert_to_tensor(candidates), V)
    return parts(decode(model, source_ids, config, n_best, shortlist=shortlist))


def test_a_shortlist_is_the_set_of_the_special_and_the_given_ids(candidates):
    ids, bias = parts(Shortlist.of(ops.convert_to_tensor(candidates), V))
    assert bias.shape == (4, len(ids)) and set(bias.flat) == {0.0, IMPOSSIBLE}
    for row, given in zip(bias, candidates, strict=True):
        assert ids[row == 0].tolist() == sorted({0, 1, 2, 3, *given.tolist()})
    if keras.backend.backend() != "jax":
        assert np.all((bias == 0).any(axis=0) | (ids == 0))  # no token that nobody may choose
        assert len(ids) % 64 == 0 and len(ids) >= 192


def test_places_become_ids(candidates):
    shortlist = Shortlist.of(ops.convert_to_tensor(candidates), V)
    ids = ops.convert_to_numpy(shortlist.ids)
    places = np.array([[[3, 0], [9, 7]], [[70, 1], [2, 9]]], "int32")
    found = ops.convert_to_numpy(shortlist.tokens(ops.convert_to_tensor(places)))
    assert found.tolist() == ids[places].tolist()


def test_with_the_whole_vocabulary_nothing_changes(model, source_ids):
    whole = np.tile(np.arange(V, dtype="int32"), (4, 1))
    expected = parts(decode(model, source_ids, settings(3), 2))
    assert_same_parts(search_eagerly(model, source_ids, whole, settings(3), 2), expected, 1e-4)


@pytest.mark.parametrize("name,beam_size,n_best", [("tied", 1, 1), ("untied", 4, 3), ("rnn", 4, 2)])
def test_it_is_the_search_in_which_other_tokens_are_impossible_for_each_sentence_alone(
    make_model, source_ids, candidates, name, beam_size, n_best
):
    """So the softmax is over the shortlist, and neighbours with other lists have no influence."""
    model = make_model(name)
    find = search if name == "untied" else search_eagerly
    together = find(model, source_ids, candidates, settings(beam_size), n_best)
    plain = parts(decode(model, source_ids, settings(beam_size), n_best))
    assert np.any(plain[0] != together[0])
    is_out = np.ones((4, V), bool)
    for out, given, found in zip(is_out, candidates, together[0], strict=True):
        out[[0, 1, 2, 3, *given]] = False
        assert not out[found].any()
    for b in (1, 2):  # one with hardly any candidates and one with some twice
        step_fn, *start = model.start_decoding(source_ids[b : b + 1], MAX_LENGTH, beam_size)

        def masked(ids, step, state, step_fn=step_fn, is_out=is_out[b]):
            logits, state = step_fn(ids, step, state)
            return ops.where(is_out, IMPOSSIBLE, logits), state

        expected = parts(beam_search(masked, *start, beam_size, n_best=n_best))
        assert_same_parts([part[b : b + 1] for part in together], expected, 1e-4)


def test_a_beam_is_kept_full_with_a_list_of_few_tokens(model, source_ids, candidates):
    """The list of a short sentence has fewer tokens than the search has continuations."""
    short, few = source_ids[1:2], candidates[1:2]
    whole_beam = settings(4, keep_beam_full=True)
    found = search_eagerly(model, short, few, whole_beam, n_best=3)

    step_fn, *start = model.start_decoding(short, MAX_LENGTH, 4)
    is_out = np.ones(V, bool)
    is_out[[0, 1, 2, 3, *few[0]]] = False

    def masked(ids, step, state):
        logits, state = step_fn(ids, step, state)
        return ops.where(is_out, IMPOSSIBLE, logits), state

    assert_same_parts(
        found, parts(beam_search(masked, *start, 4, n_best=3, keep_beam_full=True)), 1e-4
    )


def test_samples_are_tokens_of_the_shortlist(model, source_ids, candidates):
    """Compiled, with more than there are for `top_k`; the next test has it small, and eagerly."""
    options = {"top_k": 1000, "top_p": 0.8, "seed": 7}

    def draw(ids, candidates):
        shortlist = Shortlist.of(candidates, V)
        return decode_sampled(model, ids, settings(1), **options, shortlist=shortlist)

    compiled = backend.compile_function(draw, model.weights)
    ids, scores, _, _ = parts(compiled(*map(ops.convert_to_tensor, (source_ids, candidates))))
    assert np.all(scores > IMPOSSIBLE / 2)
    for row, given in zip(ids[:, 0], candidates, strict=True):
        assert set(row.tolist()) <= {0, END, *given.tolist()}


def test_sampling_from_the_most_probable_token_is_greedy_search(model, source_ids, candidates):
    shortlist = Shortlist.of(ops.convert_to_tensor(candidates), V)
    config = settings(1)
    drawn = decode_sampled(model, source_ids, config, top_k=1, seed=7, shortlist=shortlist)
    assert_same_parts(parts(drawn), search_eagerly(model, source_ids, candidates, config), 1e-4)
