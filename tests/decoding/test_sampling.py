import re

import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import greedy_search, sample
from keras_transformer.layers import DecodingState


def nothing(batch_size):
    """Returns the state and the prompts of a model that keeps nothing."""
    return DecodingState({}, {}), np.full((batch_size, 1), 2, "int32")


PROBABILITIES = np.array(
    [0.2, 0.05, 0.15, 0.06, 0.24, 0.02, 0.12, 0.005, 0.155], "float32"
)  # of 9 tokens, the first 3 forbidden; sorted: 4 .24, 8 .155, 6 .12, 3 .06, 5 .02, 7 .005


def distribution_by_hand(temperature, top_k, top_p):
    powered = np.where(np.arange(9) < 3, 0, PROBABILITIES ** (1 / temperature))
    order = np.argsort(-powered)[: top_k or 9]
    kept = powered[order] / powered[order].sum()
    enough = next(n for n in range(1, 10) if n == len(kept) or kept[:n].sum() >= top_p)
    result = np.zeros(9)
    result[order[:enough]] = kept[:enough] / kept[:enough].sum()
    return result


@pytest.mark.parametrize(
    "temperature,top_k,top_p,num_possible",
    [(1.0, 0, 1.0, 6), (0.7, 0, 1.0, 6), (1.5, 4, 1.0, 4), (1.0, 0, 0.7, 3), (2.0, 3, 0.5, 2)],
)
def test_frequencies_are_those_of_the_filtered_distribution(
    temperature, top_k, top_p, num_possible
):
    draws = 20011
    logits = ops.convert_to_tensor(np.log(PROBABILITIES) + 5)

    def step_fn(token_ids, step, state):
        return ops.broadcast_to(logits, (draws, 1, 9)), state

    limits = np.ones(draws, "int32")
    result = sample(step_fn, *nothing(len(limits)), limits, 1, temperature, top_k, top_p, seed=11)
    ids = ops.convert_to_numpy(result.ids)[:, 0, 0]
    expected = distribution_by_hand(temperature, top_k, top_p)
    assert np.count_nonzero(expected) == num_possible
    counts = np.bincount(ids, minlength=9)
    assert np.all(counts[expected == 0] == 0)
    possible = expected > 0
    chi_square = np.sum(
        (counts[possible] - draws * expected[possible]) ** 2 / (draws * expected[possible])
    )
    assert chi_square < 20.5  # 5 degrees of freedom: passed by 99.9 % of right samplers
    np.testing.assert_allclose(
        ops.convert_to_numpy(result.scores)[:, 0], np.log(PROBABILITIES[ids]), rtol=1e-4, atol=1e-5
    )


def draw(toy, limits, seed=5, **options):
    start = toy.start(1, max(limits))
    return sample(toy.step, *start, np.array(limits, "int32"), max(limits), seed=seed, **options)


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}])
def test_the_narrowest_draw_is_greedy(toy_model, hypotheses, options):
    limits = [13, 2, 0, 11, 5]
    toy = toy_model(8, batch_size=5, vocab_size=17, end_bias=2.0)
    found = hypotheses(draw(toy, limits, **options))
    greedy = greedy_search(toy.step, *toy.start(1, 13), np.array(limits, "int32"), 13)
    for [(tokens, score, finished)], [expected] in zip(found, hypotheses(greedy), strict=True):
        assert (tokens, finished) == (expected[0], expected[2])
        np.testing.assert_allclose(score, expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
@pytest.mark.parametrize("options", [{}, {"top_k": 17, "top_p": 0.99}])
def test_the_utmost_temperatures_are_greedy_search_and_equal_chances(
    toy_model, hypotheses, temperature, options
):
    """`hypotheses` sees that no forbidden token is drawn."""
    limits = [13, 2, 7, 11, 5]
    toy = toy_model(8, batch_size=5, vocab_size=17, sharpness=0.5)
    result = draw(toy, limits, temperature=temperature, **options)
    found = [tokens for [(tokens, *_)] in hypotheses(result)]
    greedy = greedy_search(toy.step, *toy.start(1, 13), np.array(limits, "int32"), 13)
    expected = [tokens for [(tokens, *_)] in hypotheses(greedy)]
    assert (found == expected) == (temperature < 1)
    assert np.all(np.isfinite(ops.convert_to_numpy(result.scores)))


def test_forbidden_tokens_are_not_drawn_where_all_others_are_improbable():
    """Logits beyond -1e9, which stands for what is impossible, at the highest temperature."""
    logits = np.zeros((4001, 1, 9), "float32")
    logits[..., 3:] = -1e7

    def step_fn(token_ids, step, state):
        return ops.convert_to_tensor(logits), state

    limits = np.ones(len(logits), "int32")
    ids = sample(step_fn, *nothing(len(limits)), limits, 1, temperature=1e6, seed=1).ids
    assert set(ops.convert_to_numpy(ids).ravel()) == {3, 4, 5, 6, 7, 8}


def test_scores_are_those_of_forced_decoding(toy_model, hypotheses):
    limits = [13, 2, 7, 11, 5]
    toy = toy_model(3, batch_size=5, vocab_size=17, end_bias=1.0)
    result = draw(toy, limits, temperature=1.7, top_k=5, length_penalty=0.9)
    for b, [(tokens, score, finished)] in enumerate(hypotheses(result)):
        assert finished == (tokens[-1] == 3) and (finished or len(tokens) == limits[b])
        expected = toy.log_prob(b, list(tokens)) / ((5 + len(tokens)) / 6) ** 0.9
        np.testing.assert_allclose(score, expected, rtol=1e-5, atol=1e-5)


def test_the_seed_decides_and_every_token_has_a_draw_of_its_own(toy_model):
    toy = toy_model(3, batch_size=5, vocab_size=17, sharpness=0.0)  # every token as probable
    first, again, other = (
        ops.convert_to_numpy(draw(toy, [13] * 5, seed=seed).ids)[:, 0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.mean(first != other) > 0.5
    assert np.mean(first[1:] != first[:-1]) > 0.5
    assert np.mean(first[:, 1:] != first[:, :-1]) > 0.5


def test_impossible_arguments_are_refused(toy_model):
    toy = toy_model(0, batch_size=1, vocab_size=7)
    for temperature in (0, -1.0, 1e-7, 1e-38, 2e6, 1e9, float("inf"), float("nan")):
        with pytest.raises(
            ValueError, match=re.escape(f"1e-06 to 1e+06. Received: {temperature=}")
        ):
            draw(toy, [5], temperature=temperature)
    with pytest.raises(ValueError, match="Received: top_k=-1, top_p=1.0"):
        draw(toy, [5], top_k=-1)
    for wrong in (dict(top_k=float("nan")), dict(top_k=1.5), dict(top_p=float("nan"))):
        with pytest.raises(ValueError, match="top_k must be a whole number from 0 on"):
            draw(toy, [5], **wrong)
    with pytest.raises(ValueError, match="Received: top_k=0, top_p=0.0"):
        draw(toy, [5], top_p=0.0)


@pytest.mark.parametrize("options", [dict(top_k=1), dict(temperature=1.4, top_p=0.9)])
def test_prompts_of_any_length_are_continued(toy_model, hypotheses, options):
    """`hypotheses` reads the output alone; the scores are of what follows each prompt."""
    toy = toy_model(8, batch_size=3, vocab_size=17)
    prompts = [[2, 5, 4, 9], [2, 0, 0, 0], [2, 7, 0, 0]]
    limits = np.array([9, 7, 4], "int32")

    def start():
        state, _ = toy.start(1, 9 + 3)
        return toy.step, state, np.array(prompts), limits, 9

    found = hypotheses(sample(*start(), seed=1, **options))
    for b, [(tokens, score, _)] in enumerate(found):
        prompt = [token for token in prompts[b][1:] if token]
        whole, given = (toy.log_prob(b, part) for part in ([*prompt, *tokens], prompt))
        expected = (whole - given) / ((5 + len(tokens)) / 6) ** 0.6
        np.testing.assert_allclose(score, expected, rtol=1e-5, atol=1e-5)
    if "top_k" in options:
        greedy = hypotheses(greedy_search(*start()))
        assert [row[0][0] for row in found] == [row[0][0] for row in greedy]
