"""Beam search with length normalization.

Shapes: B batch (sentences), N live hypotheses a sentence (the beam), M complete ones, L maximum
output length, V vocabulary, C candidates a hypothesis.
"""

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.candidates import best_continuations, take_entries
from keras_transformer.decoding.length_penalty import normalized_score
from keras_transformer.decoding.search_result import IMPOSSIBLE, SearchResult
from keras_transformer.decoding.single_path import count_pieces
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID


def beam_search(
    step_fn, cache, memory, limits, max_length, beam_size, length_penalty=0.6, n_best=None
):
    """Returns the hypotheses with the best normalized scores among those that the beam finds.

    Each step takes the N most probable continuations of all live hypotheses, by summed
    log-probability. The ones that the end token completes are put aside, scored by
    `log-probability / length_penalty` (Wu et al., 2016, eq. 14, https://arxiv.org/abs/1609.08144);
    the others live on. A sentence is done at its limit, or when n_best are complete and no live one
    can beat the worst of them, however it goes on: stopping never changes the answer. Beam 1 is
    greedy search; a beam as wide as there are sentences is exhaustive.

    Args:
        step_fn: from the previous tokens `(B, N)`, the step (int32 scalar from 0), the cache and
            the memory to logits `(B, N, V)` float32 and the cache with that step in it.
        cache: list of tensors `(B * N, H, time or 1, ...)`, what `step_fn` keeps of each
            hypothesis (row b * N + n) from step to step.
        memory: list of tensors `(B, ...)`, what it reads of each sentence.
        limits: `(B,)` int32, the most pieces a sentence may have, the end token counted.
        max_length: L, no smaller than any limit; an int, or on TensorFlow an int scalar.
        beam_size: N.
        length_penalty: alpha, 0 or more; 0 compares summed log-probabilities.
        n_best: M, hypotheses to return, at most N; None: N. Fewer let a sentence stop sooner.
    Returns:
        `SearchResult` with M hypotheses.
    Raises:
        ValueError: beam_size, n_best or length_penalty outside its range.
    """
    n_best = beam_size if n_best is None else n_best
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            "n_best must be at least 1 and at most beam_size. "
            f"Received: n_best={n_best}, beam_size={beam_size}. Widen the beam or ask for fewer."
        )
    if length_penalty < 0:
        raise ValueError(
            f"length_penalty must be 0 or more. Received: length_penalty={length_penalty}. "
            "0 favours short answers most."
        )
    limits = ops.minimum(ops.cast(limits, "int32"), max_length)
    batch_size = ops.shape(limits)[0]
    positions = ops.arange(max_length, dtype="int32")  # (L,)

    def extend(step, state, cache, memory):
        active, tokens, live_ids, live_log_probs, ended_ids, ended_scores = state
        limits, memory = memory[0], memory[1:]
        logits, cache = step_fn(tokens, step, cache, memory)
        log_probs, parents, tokens = best_continuations(logits, live_log_probs, beam_size)
        here = ops.equal(positions, step)
        ids = ops.where(here, tokens[..., None], take_entries(live_ids, parents))
        complete = ops.equal(tokens, END_ID)

        scores = normalized_score(log_probs, step + 1, length_penalty)
        scores = ops.where(complete & active[:, None], _if_possible(log_probs, scores), IMPOSSIBLE)
        ended_scores, best = ops.top_k(ops.concatenate([ended_scores, scores], axis=1), n_best)
        ended_ids = take_entries(ops.concatenate([ended_ids, ids], axis=1), ops.cast(best, "int32"))

        # A sentence that is done keeps its live hypotheses: they count if it ended by its limit.
        log_probs = ops.where(complete, IMPOSSIBLE, log_probs)
        live_ids = ops.where(active[:, None, None], ids, live_ids)
        live_log_probs = ops.where(active[:, None], log_probs, live_log_probs)

        # Log-probabilities only fall, and are divided by at most the penalty of the longest.
        best_live = ops.max(live_log_probs, axis=1)
        bound = _if_possible(best_live, normalized_score(best_live, limits, length_penalty))
        active = active & (step + 1 < limits) & (bound > ended_scores[:, -1])

        tokens = ops.where(active[:, None], tokens, PAD_ID)
        row_starts = ops.arange(ops.shape(parents)[0], dtype="int32")[:, None] * beam_size
        rows = ops.reshape(parents + row_starts, (-1,))
        cache = [backend.take_rows(tensor, rows) for tensor in cache]
        return [active, tokens, live_ids, live_log_probs, ended_ids, ended_scores], cache

    start = [
        limits > 0,
        ops.full((batch_size, beam_size), START_ID, dtype="int32"),
        ops.full((batch_size, beam_size, max_length), PAD_ID, dtype="int32"),
        # one live hypothesis, the empty one, or the beam would fill with copies of it
        ops.where(ops.equal(ops.arange(beam_size), 0), ops.zeros((batch_size, 1)), IMPOSSIBLE),
        ops.full((batch_size, n_best, max_length), PAD_ID, dtype="int32"),
        ops.full((batch_size, n_best), IMPOSSIBLE, dtype="float32"),
    ]
    _, _, *found = backend.search_loop(
        extend, start, cache, [limits, *memory], beam_size, max_length
    )
    return _ranked(*found, limits, length_penalty)


def _if_possible(log_probs, scores):
    """Returns `scores` where the summed log-probability is one of a real hypothesis."""
    return ops.where(log_probs > IMPOSSIBLE / 2, scores, IMPOSSIBLE)


def _ranked(live_ids, live_log_probs, ended_ids, ended_scores, limits, length_penalty):
    """Returns the complete hypotheses, then, for what lacks of M, the best live ones."""
    n_best = ended_scores.shape[1]
    live_scores = normalized_score(live_log_probs, limits[:, None], length_penalty)
    live_scores, best = ops.top_k(_if_possible(live_log_probs, live_scores), n_best)
    live_ids = take_entries(live_ids, ops.cast(best, "int32"))

    places = ops.arange(n_best, dtype="int32")
    num_ended = ops.sum(ops.cast(ended_scores > IMPOSSIBLE, "int32"), axis=1, keepdims=True)
    order = ops.where(places < num_ended, places, n_best + places - num_ended)  # (B, M)
    scores = take_entries(ops.concatenate([ended_scores, live_scores], axis=1), order)
    ids = take_entries(ops.concatenate([ended_ids, live_ids], axis=1), order)
    ids = ops.where((scores > IMPOSSIBLE)[..., None], ids, PAD_ID)
    return SearchResult(ids, scores, count_pieces(ids), ops.any(ops.equal(ids, END_ID), axis=-1))
