"""Processors, against loops over the tokens, and what searches do with them."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import beam_search, decode, greedy_search, sample, search_tree
from keras_transformer.decoding.processors import MinLength, NoRepeatNgram, RepetitionPenalty
from tests.decoding.test_beam_search import PROMPTS, assert_same, beam_search_by_loops, padded

END = 3
IMPOSSIBLE = -1e9


def min_length(least, log_probs, tokens):
    if len(tokens) + 1 < least:
        log_probs[END] = IMPOSSIBLE


def no_repeat_ngram(size, log_probs, tokens):
    seen = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    for token in range(len(log_probs)):
        if [*tokens[len(tokens) + 1 - size :], token] in seen:
            log_probs[token] = IMPOSSIBLE


def repetition_penalty(penalty, log_probs, tokens):
    for token in set(tokens):
        log_probs[token] *= penalty


BY_LOOPS = {
    "min length": (MinLength(5, END), functools.partial(min_length, 5)),
    "no word twice": (NoRepeatNgram(1), functools.partial(no_repeat_ngram, 1)),
    "no pair twice": (NoRepeatNgram(2), functools.partial(no_repeat_ngram, 2)),
    "no three twice": (NoRepeatNgram(3), functools.partial(no_repeat_ngram, 3)),
    "longer than all": (NoRepeatNgram(20), functools.partial(no_repeat_ngram, 20)),
    "penalty": (RepetitionPenalty(1.7), functools.partial(repetition_penalty, 1.7)),
}


class Steered:
    """A toy model after prompts, and what loops make of its log-probabilities."""

    def __init__(self, toy, changes, prompts=None):
        self.toy, self.vocab_size = toy, toy.vocab_size
        self.changes, self.prompts = changes, prompts

    def log_probs(self, sentence, tokens):
        prompt = self.prompts[sentence][1:] if self.prompts else []
        log_probs = self.toy.log_probs(sentence, [*prompt, *tokens])
        for change in self.changes:
            change(log_probs, list(tokens))
        return log_probs


@pytest.mark.parametrize("name", BY_LOOPS)
def test_a_processor_changes_what_a_loop_over_the_tokens_changes(name):
    rng = np.random.default_rng(4)
    processor, change = BY_LOOPS[name]
    shape, lengths = (5, 2, 13), np.array([0, 3, 13, 7, 11], "int32")  # B, N, L
    ids = rng.integers(END + 1, END + 4, shape).astype("int32")
    ids = np.where(np.arange(13) < lengths[:, None, None], ids, 0)
    log_probs = np.log(rng.dirichlet(np.ones(9), shape[:2])).astype("float32")
    expected = log_probs.copy()
    for b, n in np.ndindex(*shape[:2]):
        change(expected[b, n], ids[b, n, : lengths[b]].tolist())
    arguments = map(ops.convert_to_tensor, (log_probs, ids, lengths[:, None]))
    found = ops.convert_to_numpy(processor(*arguments))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.any(found != log_probs) == (name != "longer than all")
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        specs = [tf.TensorSpec([None] * 3, x.dtype) for x in (log_probs, ids)]
        compiled = tf.function(processor, [*specs, tf.TensorSpec([None, 1], tf.int32)])
        np.testing.assert_array_equal(compiled(log_probs, ids, lengths[:, None]), found)


@pytest.mark.parametrize(
    "beam_size, keep_beam_full, names",
    [
        (1, False, ("no three twice",)),
        (3, False, ("min length", "no word twice")),
        (3, True, ("no pair twice", "penalty")),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else str(value),
)
def test_searches_choose_by_what_processors_return(
    toy_model, hypotheses, beam_size, keep_beam_full, names
):
    """Prompts of any length are no part of the output; inputs do not change one another."""
    limits = [7, 4, 11, 0, 9]
    toy = toy_model(6, batch_size=5, vocab_size=17, end_bias=1.0)
    processors, changes = zip(*(BY_LOOPS[name] for name in names), strict=True)
    steered = Steered(toy, changes, PROMPTS)

    def start():
        state, _ = toy.start(beam_size, 11 + 3)
        return toy.step, state, padded(PROMPTS), np.array(limits, "int32"), 11

    arguments = dict(keep_beam_full=keep_beam_full, processors=processors)
    found = hypotheses(beam_search(*start(), beam_size, **arguments))
    plain = hypotheses(beam_search(*start(), beam_size, keep_beam_full=keep_beam_full))
    assert found != plain
    for b, limit in enumerate(limits):
        expected = beam_search_by_loops(
            steered, b, limit, beam_size, 0.6, keep_beam_full=keep_beam_full
        )
        count = sum(len(tokens) > 0 for tokens, *_ in expected[:beam_size])
        assert_same(found[b][:count], expected[:count])
    if beam_size == 1:
        greedy = hypotheses(greedy_search(*start(), processors=processors))
        for ours, theirs in zip(greedy, found, strict=True):
            if theirs[0][0]:
                assert_same(ours, theirs)


def test_samples_and_search_trees_obey_processors(toy_model, hypotheses):
    toy = toy_model(2, batch_size=7, vocab_size=11, end_bias=-1.0)
    limits, processors = np.full(7, 13, "int32"), [NoRepeatNgram(2), MinLength(9, END)]
    start = toy.step, *toy.start(1, 13), limits, 13
    found = hypotheses(sample(*start, seed=3, processors=processors, length_penalty=0.0))
    steered = Steered(toy, [BY_LOOPS["no pair twice"][1], functools.partial(min_length, 9)])
    for b, [(tokens, score, _)] in enumerate(found):
        assert len(tokens) >= 9
        steps = range(len(tokens))
        expected = sum(steered.log_probs(b, tokens[:i])[tokens[i]] for i in steps)
        np.testing.assert_allclose(score, expected, rtol=1e-4)
    one = toy.sentences([1])
    start = one.step, *one.start(3, 13), limits[:1], 13
    tree = search_tree(*start, 3, processors=processors)
    best = hypotheses(beam_search(*start, 3, processors=processors))[0][0][0]
    node, branch = tree.nodes[tree.best], []
    while node.parent is not None:
        node, branch = tree.nodes[node.parent], [node.token, *branch]
    assert tuple(branch) == best


def test_settings_ask_for_processors_and_users_add_their_own(toy_model, hypotheses):
    """Here a processor that forbids a token, as a user would write it."""
    toy = toy_model(2, batch_size=3, vocab_size=11)
    toy.start_decoding = lambda inputs, max_length, num_hypotheses, weights: (
        toy.step,
        *toy.start(num_hypotheses, max_length),
        np.full(3, 9, "int32"),
        max_length,
    )

    def without_the_word_4(log_probs, ids, lengths):
        return ops.where(ops.arange(11) == 4, IMPOSSIBLE, log_probs)

    config = DecodingConfig(
        beam_size=2, max_length=9, min_length=6, no_repeat_ngram=1, repetition_penalty=1.3
    )
    found = hypotheses(decode(toy, None, config, processors=[without_the_word_4]))
    for [(tokens, *_)] in found:
        assert len(tokens) >= 6 and len(set(tokens)) == len(tokens) and 4 not in tokens


@pytest.mark.parametrize(
    "make, received",
    [
        (lambda: NoRepeatNgram(0), "num_tokens=0"),
        (lambda: MinLength(-1, END), "num_tokens=-1"),
        (lambda: RepetitionPenalty(0.5), "penalty=0.5"),
        (lambda: RepetitionPenalty(float("nan")), "penalty=nan"),
        (lambda: DecodingConfig(repetition_penalty=0.9), "decoding.repetition_penalty=0.9"),
        (lambda: DecodingConfig(no_repeat_ngram=-1), "decoding.no_repeat_ngram=-1"),
    ],
)
def test_impossible_arguments_are_refused(make, received):
    with pytest.raises(ValueError, match=f"Received: .*{received}"):
        make()
