"""Beam search with length normalization.

Shapes: B batch (inputs), P prompt length, N live hypotheses of each input (the beam), M finished
hypotheses of each input, L maximum output length, V vocabulary.
"""

from typing import Any, NamedTuple

from keras import ops, tree

from keras_transformer import backend
from keras_transformer.decoding.candidates import best_continuations, take_entries
from keras_transformer.decoding.length_penalty import normalized_score
from keras_transformer.decoding.prompts import Prompts
from keras_transformer.decoding.search_result import (
    IMPOSSIBLE,
    SearchResult,
    count_tokens,
    ends_output,
)
from keras_transformer.errors import InputError
from keras_transformer.layers import DecodingState
from keras_transformer.special_ids import OUR_SPECIAL_IDS


class _Beam(NamedTuple):
    """What the search knows about each input after some steps."""

    active: Any
    """`(B,)` bool, whether the search goes on."""
    tokens: Any
    """`(B, N)` int32, the last token of each live hypothesis, which the next step reads."""
    live_ids: Any
    """`(B, N, L)` int32, the tokens of each live hypothesis so far, without its prompt."""
    live_log_probs: Any
    """`(B, N)` float32, their summed log-probabilities."""
    finished_ids: Any
    """`(B, M, L)` int32, the best hypotheses that have ended with the end token."""
    finished_scores: Any
    """`(B, M)` float32, their scores, the best first; `IMPOSSIBLE` where there is none yet."""


def beam_search(
    step_fn,
    state,
    prompts,
    limits,
    max_length,
    beam_size,
    length_penalty=0.6,
    n_best=None,
    special_ids=OUR_SPECIAL_IDS,
):
    """Returns the hypotheses with the best normalized scores among those that the beam finds.

    Each step takes the N most probable continuations of all live hypotheses, by summed
    log-probability. Those that end with the end token are finished: the best of them are kept, by
    their score, `log-probability / length_penalty` (Wu et al., 2016, eq. 14,
    https://arxiv.org/abs/1609.08144, without its coverage penalty). The others stay live. The
    search for an input ends at its limit, or when n_best hypotheses are finished and no
    continuation of a live one can beat the worst of them: stopping early never changes the answer.
    With a beam of 1 it is greedy search; with a beam as wide as the number of possible outputs it
    is exhaustive.

    Example: two beams, no length penalty, n_best 1, and a vocabulary of a, b and the end token.
    Probabilities stand in brackets; those of a hypothesis are multiplied, as the search adds their
    logarithms.

        step 0   live ""    a (.5)      b (.4)      end (.1)
                 The two best are a (.5) and b (.4). Both live on.
        step 1   live a     a a (.10)   a b (.15)   a end (.25)
                 live b     b a (.04)   b b (.20)   b end (.16)
                 The two best are a end (.25), which is finished, and b b (.20), which lives on.
                 Its probability can only fall, so it cannot beat .25 any more: the search ends,
                 and its answer is a end.

    Args:
        step_fn: function of the previous tokens `(B, N)`, the step (int32 scalar from 0) and the
            state. Returns `(logits, state)`: logits `(B, N, V)` float32 of the next token, and the
            state after that step.
        state: `DecodingState` before the first step, for N hypotheses of each input.
        prompts: `(B, P)` int32, padded at the end: the tokens that each output continues,
            at least one, such as the start token. Scores do not include their probabilities.
        limits: `(B,)` int32, maximum tokens of each output, including the end token, without the
            prompt.
        max_length: L, at least as large as every limit; an int, or on TensorFlow an int scalar. The
            cache of the state needs room for L + P - 1 steps.
        beam_size: N.
        length_penalty: alpha, 0 or more; 0 compares summed log-probabilities.
        n_best: M, hypotheses to return, at most N; None: N. With fewer, the search ends sooner.
        special_ids: `SpecialIds` of the vocabulary.
    Returns:
        `SearchResult` with M hypotheses.
    Raises:
        ValueError: beam_size, n_best or length_penalty outside its range.
    """
    n_best = beam_size if n_best is None else n_best
    if not 1 <= n_best <= beam_size:
        raise InputError(
            "n_best must be at least 1 and at most beam_size. "
            f"Received: n_best={n_best}, beam_size={beam_size}. Widen the beam or ask for fewer."
        )
    if length_penalty < 0:
        raise InputError(
            f"length_penalty must be 0 or more. Received: length_penalty={length_penalty}. "
            "0 prefers short answers most."
        )
    pad_id, end_id = special_ids
    prompts = Prompts(prompts, pad_id)
    limits = ops.minimum(ops.cast(limits, "int32"), max_length)
    positions = ops.arange(max_length, dtype="int32")  # (L,)

    def extend(step, beam, cache, memory):
        """Makes all live hypotheses one token longer."""
        logits, state = step_fn(beam.tokens, step, DecodingState(cache, memory["model"]))
        log_probs, parents, tokens = best_continuations(
            logits, beam.live_log_probs, beam_size, special_ids.num_forbidden
        )
        ends = ends_output(tokens, end_id)
        tokens, is_given = prompts.replace(step, memory["prompts"], tokens)
        if is_given is not None:
            ends = ends & ~is_given
            parents = ops.where(is_given, ops.arange(beam_size, dtype="int32"), parents)
            log_probs = ops.where(is_given, beam.live_log_probs, log_probs)
        place = ops.reshape(prompts.place(step, memory["prompts"]), (-1, 1))  # in the output
        is_place = ops.equal(positions, place[..., None])
        ids = ops.where(is_place, tokens[..., None], take_entries(beam.live_ids, parents))

        # Finished hypotheses: the best of the old and the new ones.
        scores = normalized_score(log_probs, place + 1, length_penalty)
        is_new = ends & beam.active[:, None]
        scores = ops.where(is_new, _if_possible(log_probs, scores), IMPOSSIBLE)
        scores = ops.concatenate([beam.finished_scores, scores], axis=1)
        finished_scores, best = ops.top_k(scores, n_best)
        finished_ids = ops.concatenate([beam.finished_ids, ids], axis=1)
        finished_ids = take_entries(finished_ids, ops.cast(best, "int32"))

        # Live hypotheses. If the search for an input has ended, they stay as they are: if it ended
        # at the limit, they are answers too.
        log_probs = ops.where(ends, IMPOSSIBLE, log_probs)
        live_ids = ops.where(beam.active[:, None, None], ids, beam.live_ids)
        live_log_probs = ops.where(beam.active[:, None], log_probs, beam.live_log_probs)

        # The search goes on while a live hypothesis can still beat the worst finished one. Its
        # log-probability only falls, and is divided by at most the penalty of the longest output.
        limits = memory["limits"]
        best_live = ops.max(live_log_probs, axis=1)
        bound = _if_possible(best_live, normalized_score(best_live, limits, length_penalty))
        can_win = bound > finished_scores[:, -1]
        active = beam.active & (place[:, 0] + 1 < limits) & can_win

        tokens = ops.where(active[:, None], tokens, pad_id)
        row_starts = ops.arange(ops.shape(parents)[0], dtype="int32")[:, None] * beam_size
        rows = ops.reshape(parents + row_starts, (-1,))
        cache = tree.map_structure(lambda tensor: backend.take_rows(tensor, rows), state.cache)
        beam = _Beam(active, tokens, live_ids, live_log_probs, finished_ids, finished_scores)
        return beam, cache

    batch_size = ops.shape(limits)[0]
    # At first only one hypothesis, the empty one, is live. Otherwise the beam would hold copies.
    is_first = ops.equal(ops.arange(beam_size), 0)
    start = _Beam(
        active=limits > 0,
        tokens=prompts.first_tokens(beam_size),
        live_ids=ops.full((batch_size, beam_size, max_length), pad_id, dtype="int32"),
        live_log_probs=ops.where(is_first, ops.zeros((batch_size, 1)), IMPOSSIBLE),
        finished_ids=ops.full((batch_size, n_best, max_length), pad_id, dtype="int32"),
        finished_scores=ops.full((batch_size, n_best), IMPOSSIBLE, dtype="float32"),
    )
    memory = {"model": state.memory, "limits": limits, "prompts": prompts.memory}
    num_steps = max_length + prompts.num_extra_steps
    beam = backend.search_loop(extend, start, state.cache, memory, beam_size, num_steps)
    return _ranked(beam, limits, length_penalty, special_ids)


def _if_possible(log_probs, scores):
    """Returns `scores`, but `IMPOSSIBLE` where the log-probability says that there is none."""
    return ops.where(log_probs > IMPOSSIBLE / 2, scores, IMPOSSIBLE)


def _ranked(beam, limits, length_penalty, special_ids):
    """Returns the M best hypotheses: the finished ones, then live ones if M is not reached."""
    n_best = beam.finished_scores.shape[1]
    live_scores = normalized_score(beam.live_log_probs, limits[:, None], length_penalty)
    live_scores, best = ops.top_k(_if_possible(beam.live_log_probs, live_scores), n_best)
    live_ids = take_entries(beam.live_ids, ops.cast(best, "int32"))

    places = ops.arange(n_best, dtype="int32")
    is_finished = ops.cast(beam.finished_scores > IMPOSSIBLE, "int32")
    num_finished = ops.sum(is_finished, axis=1, keepdims=True)
    order = ops.where(places < num_finished, places, n_best + places - num_finished)  # (B, M)
    scores = take_entries(ops.concatenate([beam.finished_scores, live_scores], axis=1), order)
    ids = take_entries(ops.concatenate([beam.finished_ids, live_ids], axis=1), order)
    ids = ops.where((scores > IMPOSSIBLE)[..., None], ids, special_ids.pad)
    has_ended = ops.any(ends_output(ids, special_ids.end), axis=-1)
    return SearchResult(ids, scores, count_tokens(ids, special_ids.pad), has_ended)
