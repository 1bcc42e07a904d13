import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import beam_search, greedy_search
from keras_transformer.layers import DecodingState

END = 3


def nothing():
    """Returns the state and the prompts of a model that keeps nothing."""
    return DecodingState({}, {}), np.full((1, 1), 2, "int32")


def penalty(length, alpha, form="gnmt"):
    return length**alpha if form == "length" else ((5 + length) / 6) ** alpha


def ranked(hypotheses):
    """Complete ones first, then by score."""
    return sorted(hypotheses, key=lambda hypothesis: (not hypothesis[2], -hypothesis[1]))


def every_hypothesis(toy, sentence, limit, *normalization):
    """All sentences of at most `limit` pieces, and all that are cut there."""
    words = range(END + 1, toy.vocab_size)
    found = []
    for length in range(limit):
        for tokens in itertools.product(words, repeat=length):
            score = toy.log_prob(sentence, [*tokens, END]) / penalty(length + 1, *normalization)
            found.append(((*tokens, END), score, True))
    for tokens in itertools.product(words, repeat=limit):
        score = toy.log_prob(sentence, list(tokens)) / penalty(limit, *normalization)
        found.append((tokens, score, False))
    return ranked(found)


def beam_search_by_loops(toy, sentence, limit, beam_size, *normalization, keep_beam_full=False):
    """The same search, one hypothesis at a time and never stopping before the limit."""
    live, complete = [([], 0.0)], []
    for _ in range(limit):
        candidates = []
        for tokens, total in live:
            log_probs = toy.log_probs(sentence, tokens)
            candidates += [
                ([*tokens, token], total + log_probs[token]) for token in range(END, toy.vocab_size)
            ]
        candidates = sorted(candidates, key=lambda item: -item[1])
        complete += [item for item in candidates[:beam_size] if item[0][-1] == END]
        if not keep_beam_full:
            candidates = candidates[:beam_size]
        live = [item for item in candidates if item[0][-1] != END][:beam_size]
    found = [(tuple(t), s / penalty(len(t), *normalization), True) for t, s in complete]
    found += [(tuple(t), s / penalty(limit, *normalization), False) for t, s in live]
    return ranked(found)


def assert_same(found, expected):
    assert [(tokens, finished) for tokens, _, finished in found] == [
        (tokens, finished) for tokens, _, finished in expected
    ]
    scores = [[score for _, score, _ in side] for side in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-5)


def search(toy, limits, beam_size, alpha=0.6, n_best=None, form="gnmt", keep_beam_full=False):
    max_length = max(limits)
    return beam_search(
        toy.step,
        *toy.start(beam_size, max_length),
        np.array(limits, "int32"),
        max_length,
        beam_size,
        alpha,
        n_best,
        length_normalization=form,
        keep_beam_full=keep_beam_full,
    )


@pytest.mark.parametrize(
    "seed,alpha,form", [(1, 0.0, "gnmt"), (2, 0.6, "gnmt"), (4, 2.5, "gnmt"), (5, 1.0, "length")]
)
def test_a_beam_as_wide_as_the_language_is_exhaustive(toy_model, hypotheses, seed, alpha, form):
    limits = [4, 1, 3]
    toy = toy_model(seed, batch_size=3, vocab_size=7)
    expected = [every_hypothesis(toy, b, limit, alpha, form) for b, limit in enumerate(limits)]
    widest = len(expected[0])
    found = hypotheses(search(toy, limits, widest, alpha, form=form))
    for b in range(3):
        count = len(expected[b])
        assert_same(found[b][:count], expected[b])
        assert all(hypothesis == ((), -1e9, False) for hypothesis in found[b][count:])
    for found_best, all_expected in zip(
        hypotheses(search(toy, limits, widest, alpha, n_best=2, form=form)), expected, strict=True
    ):
        assert_same(found_best, all_expected[:2])


def test_a_beam_of_one_is_greedy_search_in_both_cases(toy_model, hypotheses):
    """With a large alpha, a longer hypothesis would win if it took the place of a finished one."""
    toy = toy_model(3, batch_size=8, vocab_size=9, end_bias=2.0)
    limits = [9] * 8
    narrow, full = (
        hypotheses(search(toy, limits, 1, 2.0, form="length", keep_beam_full=x))
        for x in (False, True)
    )
    for one, other in zip(narrow, full, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(
    "beam_size,n_best,alpha,form,end_bias,keep_beam_full",
    [
        (2, 1, 0.6, "gnmt", 3.0, False),
        (5, 5, 0.6, "gnmt", 1.0, False),
        (5, 3, 0.0, "gnmt", 1.0, False),
        (3, 2, 2.0, "gnmt", 3.0, False),
        (4, 1, 1.0, "length", 3.0, False),
        (2, 1, 0.6, "gnmt", 3.0, True),
        (5, 5, 0.6, "gnmt", 3.0, True),
        (4, 2, 1.0, "length", 3.0, True),
    ],
)
def test_stopping_early_changes_nothing(
    toy_model, hypotheses, beam_size, n_best, alpha, form, end_bias, keep_beam_full
):
    limits = [13, 2, 7, 11, 5] * 2
    toy = toy_model(6, batch_size=10, vocab_size=13, end_bias=end_bias)
    found = hypotheses(search(toy, limits, beam_size, alpha, n_best, form, keep_beam_full))
    for b, limit in enumerate(limits):
        expected = beam_search_by_loops(
            toy, b, limit, beam_size, alpha, form, keep_beam_full=keep_beam_full
        )
        assert_same(found[b], expected[:n_best])
    assert len({len(tokens) for sentence in found for tokens, _, _ in sentence}) > 3


def scripted(certain_from=31):
    """At each step END has 0.9 and the word 4 has 0.1; limit 31, so the last penalty is 6 ** alpha.

    From `certain_from` on the word 4 is certain, and END at the last step. Returns the step
    function and a list that grows by each step.
    """
    probabilities = np.full((31, 5), 1e-30)
    probabilities[:, END], probabilities[:, 4] = 0.9, 0.1
    probabilities[certain_from:30, [END, 4]] = 1e-30, 1.0
    if certain_from < 31:
        probabilities[30, [END, 4]] = 1.0, 1e-30
    table = np.log(probabilities).astype("float32")
    steps = []

    def step_fn(token_ids, step, state):
        steps.append(step)
        logits = ops.take(ops.convert_to_tensor(table), step, axis=0)
        return ops.broadcast_to(logits, (*ops.shape(token_ids), 5)), state

    return step_fn, steps


@pytest.mark.parametrize("alpha,n_best,num_steps", [(0, 1, 1), (0, 2, 2), (1, 1, 1), (1, 2, 6)])
def test_stops_as_soon_as_no_live_hypothesis_can_win(hypotheses, alpha, n_best, num_steps):
    """By hand, alpha 1: "END" scores -0.105 and "4 END" -2.064; after s steps of "4" the bound is
    s * ln(0.1) / 6, which is -1.919 after 5 steps and -2.303 after 6."""
    expected = [((END,), np.log(0.9), True), ((4, END), np.log(0.09) / (7 / 6) ** alpha, True)]
    step_fn, steps = scripted(certain_from=num_steps)
    result = beam_search(step_fn, *nothing(), np.array([31], "int32"), 31, 2, alpha, n_best)
    assert_same(hypotheses(result)[0], expected[:n_best])
    if keras.backend.backend() != "jax":  # which traces the steps
        assert len(steps) == num_steps


def test_does_not_stop_before(hypotheses):
    """As above: after 5 steps the longest sentence could still be second, and here it is."""
    step_fn, _ = scripted(certain_from=5)
    found = hypotheses(beam_search(step_fn, *nothing(), np.array([31], "int32"), 31, 2, 1.0))[0]
    longest = ((4,) * 30 + (END,), 5 * np.log(0.1) / 6, True)
    assert_same(found, [((END,), np.log(0.9), True), longest])


def test_beam_one_is_greedy(toy_model, hypotheses):
    limits = [17, 3, 11, 5] * 4
    toy = toy_model(6, batch_size=16, vocab_size=13, end_bias=2.0)
    greedy = greedy_search(toy.step, *toy.start(1, 17), np.array(limits, "int32"), 17)
    ended = ops.convert_to_numpy(greedy.finished)
    assert 2 < ended.sum() < 14
    for found, expected in zip(hypotheses(search(toy, limits, 1)), hypotheses(greedy), strict=True):
        assert_same(found, expected)


def test_a_sentence_does_not_depend_on_its_neighbours(toy_model, hypotheses):
    limits = [13, 2, 7, 11, 5]
    toy = toy_model(8, batch_size=5, vocab_size=17, end_bias=2.0)

    def without_numbers_where_done(token_ids, step, state):
        logits, state = toy.step(token_ids, step, state)
        done = ops.all(token_ids == 0, axis=1)[:, None, None]
        return ops.where(done, float("nan"), logits), state

    start = toy.start(3, 13)
    limit_ids = np.array(limits, "int32")
    together = hypotheses(beam_search(without_numbers_where_done, *start, limit_ids, 13, 3))
    assert len({len(tokens) for sentence in together for tokens, _, _ in sentence}) > 3
    for b in (0, 3):
        alone = hypotheses(search(toy.sentences([b]), limits[b : b + 1], 3))
        assert_same(alone[0], together[b])


def test_n_best_are_distinct_ordered_and_scored_as_forced_decoding_does(toy_model, hypotheses):
    limits = [5, 9]
    toy = toy_model(3, batch_size=2, vocab_size=19, end_bias=1.0)
    for b, found in enumerate(hypotheses(search(toy, limits, 7, alpha=0.8))):
        assert found == ranked(found)
        assert len({tokens for tokens, _, _ in found}) == 7
        for tokens, score, finished in found:
            assert len(tokens) <= limits[b] and finished == (tokens[-1] == END)
            assert finished or len(tokens) == limits[b]
            expected = toy.log_prob(b, list(tokens)) / penalty(len(tokens), 0.8)
            np.testing.assert_allclose(score, expected, rtol=1e-5, atol=1e-5)


def test_complete_hypotheses_rank_before_better_ones_that_were_cut(hypotheses):
    """At the limit of 3 "4 4 4" has 3 ln 0.9, far above "END" with ln 0.1, which comes first."""
    table = np.full((1, 1, 5), -60.0, "float32")
    table[..., END], table[..., 4] = np.log(0.1), np.log(0.9)

    def step_fn(token_ids, step, state):
        return ops.broadcast_to(ops.convert_to_tensor(table), (*ops.shape(token_ids), 5)), state

    found = hypotheses(beam_search(step_fn, *nothing(), np.array([3], "int32"), 3, 5, 0.0))[0]
    assert [tokens for tokens, _, _ in found] == [
        (END,),
        (4, END),
        (4, 4, END),
        (4, 4, 4),
        (),
    ]
    assert [finished for _, _, finished in found] == [True, True, True, False, False]


def test_a_limit_of_nothing_gives_nothing(toy_model, hypotheses):
    toy = toy_model(5, batch_size=2, vocab_size=7)
    found = hypotheses(search(toy, [0, 3], 2))
    assert found[0][0] == ((), 0.0, False)
    assert_same(found[1], beam_search_by_loops(toy, 1, 3, 2, 0.6)[:2])


def test_impossible_arguments_are_refused(toy_model):
    toy = toy_model(0, batch_size=1, vocab_size=7)
    with pytest.raises(ValueError, match="Received: n_best=3, beam_size=2"):
        search(toy, [5], 2, n_best=3)
    with pytest.raises(ValueError, match="Received: n_best=0, beam_size=0"):
        search(toy, [5], 0)
    with pytest.raises(ValueError, match="Received: length_penalty=-0.5"):
        search(toy, [5], 2, alpha=-0.5)


PROMPTS = [[2, 5, 4, 9], [2], [2, 8, 3, 0][:3], [2, 4], [2, 6, 6, 11]]


def padded(prompts):
    ids = np.zeros((len(prompts), max(map(len, prompts))), "int32")
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = prompt
    return ids


@pytest.mark.parametrize("beam_size, keep_beam_full", [(1, False), (3, False), (3, True)])
def test_prompts_of_any_length_are_continued(toy_model, hypotheses, beam_size, keep_beam_full):
    """As if each had been searched alone, from the state that its prompt leaves behind.

    One of them holds an end token, which ends nothing there.
    """
    limits = [7, 4, 9, 0, 5]
    toy = toy_model(6, batch_size=5, vocab_size=13, end_bias=2.0)

    def start():
        state, _ = toy.start(beam_size, 9 + 3)
        return toy.step, state, padded(PROMPTS), np.array(limits, "int32"), 9

    found = hypotheses(beam_search(*start(), beam_size, keep_beam_full=keep_beam_full))
    for b, limit in enumerate(limits):
        after = Prompted(toy, PROMPTS[b][1:])
        expected = beam_search_by_loops(
            after, b, limit, beam_size, 0.6, keep_beam_full=keep_beam_full
        )
        count = sum(len(tokens) > 0 for tokens, *_ in expected)
        assert_same(found[b][:count], expected[:count][:beam_size])
    if beam_size == 1:
        for ours, theirs in zip(hypotheses(greedy_search(*start())), found, strict=True):
            if theirs[0][0]:
                assert_same(ours, theirs)


class Prompted:
    """A toy model after a prompt: its log-probabilities of what follows."""

    def __init__(self, toy, prompt):
        self.vocab_size = toy.vocab_size
        self.log_probs = lambda b, prefix: toy.log_probs(b, [*prompt, *prefix])
