"""Outputs that begin with given bytes, against loops over all ways to write them."""

import functools

import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import beam_search, greedy_search
from keras_transformer.decoding.prefixes import MAX_BYTES, Prefixes, PrefixVocabulary
from tests.decoding.test_beam_search import assert_same, beam_search_by_loops

IMPOSSIBLE = -1e9
SURFACES = [
    *[b""] * 4, b" a", b"a", b"ab", b" ab", b"b", b"\xc3", b"\xa4", "ä".encode(), b" x", b"abc",
]  # fmt: skip
VOCAB_SIZE = len(SURFACES) + 1  # a model may have more embeddings
WRITTEN = [*SURFACES, b""]
RESTS = [b" a", b"ab", " aä".encode(), b"b", b" ababab", b"", "ä a".encode(), b" "]


@functools.cache
def can_be_written(rest):
    """Whether some tokens, the last of which may go on, begin with the bytes."""
    return not rest or bool(allowed(rest))


def allowed(rest):
    """Returns the tokens that may come next when so many bytes are left."""
    return [
        i
        for i, surface in enumerate(SURFACES)
        if surface
        and (
            surface.startswith(rest)
            or (rest.startswith(surface) and can_be_written(rest[len(surface) :]))
        )
    ]


def steer(rest, log_probs, tokens):
    left = rest[len(b"".join(WRITTEN[token] for token in tokens)) :]
    if left:
        log_probs[[i for i in range(VOCAB_SIZE) if i not in allowed(left)]] = IMPOSSIBLE


def rows_of(vocabulary, rests):
    """Returns the `Prefixes` whose bytes are `rests`, without tokens before them."""
    prefixes = Prefixes(vocabulary, [([], False)] * len(rests))
    prefixes._rows = [([], rest) for rest in rests]
    return prefixes


def test_tokens_that_go_on_with_the_bytes_are_allowed():
    vocabulary = PrefixVocabulary(SURFACES, VOCAB_SIZE)
    rng = np.random.default_rng(2)
    ids = np.zeros((len(RESTS), 3, 6), "int32")
    for b, rest in enumerate(RESTS):
        for n in range(1, 3):  # of three hypotheses, one has no token yet
            left, k = rest, 0
            while left and k < 2:
                ids[b, n, k] = rng.choice(allowed(left))
                left, k = left[len(SURFACES[ids[b, n, k]]) :], k + 1
    arrays = rows_of(vocabulary, RESTS).arrays(range(len(RESTS)), len(RESTS) + 1)
    arrays = [ops.convert_to_tensor(array[: len(RESTS)]) for array in arrays]
    log_probs = np.log(rng.dirichlet(np.ones(VOCAB_SIZE), ids.shape[:2])).astype("float32")
    expected = log_probs.copy()
    for b, n in np.ndindex(*ids.shape[:2]):
        steer(RESTS[b], expected[b, n], [i for i in ids[b, n] if i])
    _, processor = vocabulary.options(*arrays)
    given = map(ops.convert_to_tensor, (log_probs, ids, np.zeros((len(RESTS), 1), "int32")))
    found = ops.convert_to_numpy(processor(*given, *processor.memory))
    np.testing.assert_array_equal(found, expected)
    assert np.any(found != log_probs)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_searches_begin_with_the_bytes_of_each_input(toy_model, hypotheses, beam_size):
    """The inputs end at different steps, so that rows are dropped in the middle of the search."""
    toy = toy_model(6, batch_size=len(RESTS), vocab_size=VOCAB_SIZE, end_bias=1.0)
    vocabulary = PrefixVocabulary(SURFACES, VOCAB_SIZE)
    arrays = rows_of(vocabulary, RESTS).arrays(range(len(RESTS)), len(RESTS))
    assert arrays[0].shape == (len(RESTS), 0)
    processors = [vocabulary.options(*map(ops.convert_to_tensor, arrays))[1]]
    limits = np.array([5, 9, 12, 4, 12, 3, 12, 5], "int32")

    def log_probs(sentence, tokens):
        found = toy.log_probs(sentence, tokens)
        steer(RESTS[sentence], found, tokens)
        return found

    class Steered:
        vocab_size = VOCAB_SIZE

    Steered.log_probs = staticmethod(log_probs)
    start = toy.step, *toy.start(beam_size, 12), limits, 12
    found = hypotheses(beam_search(*start, beam_size, processors=processors))
    for b, limit in enumerate(limits):
        loops = beam_search_by_loops(Steered, b, limit, beam_size, 0.6)
        expected = [each for each in loops if each[1] > IMPOSSIBLE / 2][:beam_size]
        assert len(expected) > 0
        assert_same(found[b][: len(expected)], expected)
        text = b"".join(WRITTEN[token] for token in found[b][0][0])
        assert text.startswith(RESTS[b])
    if beam_size == 1:
        greedy = hypotheses(greedy_search(*start, processors=processors))
        for ours, theirs in zip(greedy, found, strict=True):
            assert_same(ours, theirs)


@pytest.mark.parametrize(
    ("ids", "ends_word", "expected"),
    [
        ([4, 8, 7, 8], False, ([4, 8], b" abb")),  # the last word may be written in other tokens
        ([4, 8, 7, 8], True, ([4, 8, 7, 8], b" ")),
        ([5, 8], False, ([], b"ab")),  # no space before the first word
        ([4, *[5] * 40], False, ([4, *[5] * 8], b"a" * MAX_BYTES)),  # text without spaces
    ],
)
def test_whole_words_are_given_as_tokens_and_the_last_one_as_bytes(ids, ends_word, expected):
    assert PrefixVocabulary(SURFACES, VOCAB_SIZE).split(ids, ends_word) == expected
