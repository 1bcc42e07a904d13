"""Beam search with length normalization. docs/concepts/beam-search.md explains it on an example.

Shapes: B batch (inputs), P prompt length, N live hypotheses of each input (the beam), C candidates
(N, or 2 N where the beam is kept full), M finished hypotheses of each input, L maximum output
length, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops, tree

from keras_transformer import backend
from keras_transformer.decoding.candidates import best_continuations, forbid
from keras_transformer.decoding.hypotheses import (
    IMPOSSIBLE,
    DecodingStart,
    Search,
    SearchResult,
    count_tokens,
    ends_output,
)
from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.scoring import normalized_score
from keras_transformer.errors import InputError
from keras_transformer.special_ids import OUR_SPECIAL_IDS, SpecialIds
from keras_transformer.types import Tensor


def beam_search(
    step_fn: Callable[..., Any],
    state: Any,
    prompts: Tensor,
    limits: Tensor,
    max_length: Any,
    beam_size: int,
    length_penalty: float = 0.6,
    n_best: int | None = None,
    special_ids: SpecialIds = OUR_SPECIAL_IDS,
    length_normalization: str = "gnmt",
    keep_beam_full: bool = False,
    processors: Sequence[Processor] = (),
) -> SearchResult:
    """Returns the hypotheses with the best normalized scores among those that the beam finds.

    Each step takes the N most probable continuations of all live hypotheses, by summed
    log-probability. Those that end with the end token are finished: the best of them are kept, by
    their score, `log-probability / length_penalty` (Wu et al., 2016, eq. 14,
    https://arxiv.org/abs/1609.08144, without its coverage penalty). The others stay live. The
    search for an input ends at its limit, or when n_best hypotheses are finished and no
    continuation of a live one can beat the worst of them: stopping early never changes the answer.
    With a beam of 1 it is greedy search; with a beam as wide as the number of possible outputs it
    is exhaustive.

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
            cache of the state must hold L + P - 1 steps.
        beam_size: N.
        length_penalty: alpha, 0 or more; 0 compares summed log-probabilities.
        n_best: M, hypotheses to return, at most N; None: N. With fewer, the search ends sooner.
        special_ids: `SpecialIds` of the vocabulary.
        length_normalization: "gnmt", or "length" for a length penalty of length^alpha.
        keep_beam_full: whether the next most probable continuation takes the place in the beam of
            one that has ended, as in `generate` of Hugging Face and in CTranslate2. Otherwise the
            beam gets narrower by one, as in Marian. The N most probable ones decide which end. A
            beam of 1 stays greedy search.
        processors: functions that change log-probabilities, see `decoding.processors`.
    Returns:
        `SearchResult` with M hypotheses.
    Raises:
        ValueError: beam_size, n_best or length_penalty outside its range, or an unknown
            length_normalization.
    """
    start = DecodingStart(step_fn, state, prompts, limits, max_length)
    normalization = length_penalty, length_normalization
    search = BeamSearch(
        start, special_ids, beam_size, normalization, n_best, keep_beam_full, processors
    )

    def extend(step, beam, cache, memory):
        """Makes all live hypotheses one token longer."""
        candidates, cache = search.propose(step, beam, cache, memory)
        return search.choose(beam, candidates, memory), cache

    beam = backend.search_loop(
        extend, search.start(), search.cache, search.memory, beam_size, search.num_steps
    )
    return search.answer(beam)


class Beam(NamedTuple):
    """What the search knows about each input after some steps."""

    active: Any
    """`(B,)` bool, whether the search goes on."""
    tokens: Any
    """`(B, N)` int32, the last token of each live hypothesis, which the next step reads."""
    live_ids: Any
    """`(B, N, L)` int32, the tokens of each live hypothesis so far, without its prompt."""
    live_log_probs: Any
    """`(B, N)` float32, their summed log-probabilities; `IMPOSSIBLE` where there is none."""
    finished_ids: Any
    """`(B, M, L)` int32, the best hypotheses that have ended with the end token."""
    finished_scores: Any
    """`(B, M)` float32, their scores, the best first; `IMPOSSIBLE` where there is none yet."""


class Candidates(NamedTuple):
    """The most probable continuations, by one token, of the live hypotheses of each input.

    The first N may live on. Where the beam is kept full, N others may end.
    """

    ids: Any
    """`(B, C, L)` int32, the tokens of each so far, the last one included."""
    tokens: Any
    """`(B, C)` int32, the last token of each."""
    log_probs: Any
    """`(B, C)` float32, their summed log-probabilities; `IMPOSSIBLE` where there is none."""
    parents: Any
    """`(B, C)` int32, the indices of the live hypotheses that they continue."""
    ends: Any
    """`(B, C)` bool, whether the last token is the end token."""
    lengths: Any
    """`(1, 1)` or `(B, 1)` int32, the number of tokens of each."""


class BeamSearch(Search):
    """The steps of a beam search; `beam_search` and `search_tree` repeat `propose` and `choose`.

    Args:
        start, special_ids, processors: see `Search`.
        beam_size, n_best, keep_beam_full: see `beam_search`.
        normalization: length_penalty and length_normalization.
    """

    def __init__(
        self, start, special_ids, beam_size, normalization, n_best, keep_beam_full, processors
    ):
        n_best = beam_size if n_best is None else n_best
        if not 1 <= n_best <= beam_size:
            raise InputError(
                "n_best must be at least 1 and at most beam_size. Received: "
                f"{n_best=}, {beam_size=}. Widen the beam or ask for fewer."
            )
        super().__init__(start, special_ids, processors)
        self.beam_size = beam_size
        self.normalization = normalization
        self.n_best = n_best
        self.allocators = [i for i, p in enumerate(processors) if hasattr(p, "allocate")]
        # a beam of 1 is greedy search, and what is allocated are the places of the beam itself
        self.keep_beam_full = keep_beam_full and beam_size > 1 and not self.allocators
        self.num_candidates = 2 * beam_size if self.keep_beam_full else beam_size

    def start(self):
        """Returns the `Beam` before the first step: one empty live hypothesis, none finished."""
        batch_size, pad_id = ops.shape(self.limits)[0], self.special_ids.pad
        live_shape = batch_size, self.beam_size, self.max_length
        finished_shape = batch_size, self.n_best, self.max_length
        # The beam would hold copies if all N empty hypotheses were possible.
        is_first = ops.equal(ops.arange(self.beam_size), 0)
        return Beam(
            active=self.limits > 0,
            tokens=self.prompts.first_tokens(self.beam_size),
            live_ids=ops.full(live_shape, pad_id, dtype="int32"),
            live_log_probs=ops.where(is_first, ops.zeros((batch_size, 1), "float32"), IMPOSSIBLE),
            finished_ids=ops.full(finished_shape, pad_id, dtype="int32"),
            finished_scores=ops.full(finished_shape[:2], IMPOSSIBLE, dtype="float32"),
        )

    def propose(self, step, beam, cache, memory):
        """Asks the model for the next tokens of all live hypotheses.

        Returns:
            The `Candidates`, and the model's cache with a row for each that may live on.
        """
        logits, cache = self.predict(step, beam.tokens, beam.live_ids, cache, memory)
        log_probs, parents, tokens = best_continuations(
            logits,
            beam.live_log_probs,
            self.num_candidates,
            self.special_ids.num_forbidden,
            self.are_log_probs,
        )
        if self.allocators:
            log_probs, parents, tokens = self._allocated(
                (log_probs, parents, tokens), step, logits, beam, memory
            )
        ends = ends_output(tokens, self.special_ids.end)
        if self.keep_beam_full:
            log_probs, parents, tokens, ends = self._live_first(log_probs, parents, tokens, ends)

        # While a prompt goes on, its next token is the only continuation, and costs nothing.
        tokens, is_given = self.prompts.replace(step, memory["prompts"], tokens)
        if is_given is not None:
            ends = ends & ~is_given
            same = ops.arange(self.num_candidates, dtype="int32") % self.beam_size
            parents = ops.where(is_given, same, parents)
            live_log_probs = beam.live_log_probs
            if self.keep_beam_full:
                nothing = ops.full_like(live_log_probs, IMPOSSIBLE)
                live_log_probs = ops.concatenate([live_log_probs, nothing], axis=1)
            log_probs = ops.where(is_given, live_log_probs, log_probs)

        place = ops.reshape(self.prompts.place(step, memory["prompts"]), (-1, 1))  # in the output
        is_place = ops.equal(self.positions, place[..., None])
        ids = ops.where(is_place, tokens[..., None], backend.batch_gather(beam.live_ids, parents))

        row_starts = ops.arange(ops.shape(parents)[0], dtype="int32")[:, None] * self.beam_size
        rows = ops.reshape(self._may_live(parents) + row_starts, (-1,))
        cache = tree.map_structure(lambda tensor: backend.take_rows(tensor, rows), cache)
        return Candidates(ids, tokens, log_probs, parents, ends, place + 1), cache

    def _allocated(self, continuations, step, logits, beam, memory):
        """Returns the continuations that processors with a method `allocate` put in their place."""
        log_probs = logits + beam.live_log_probs[..., None]
        ids = ops.arange(ops.shape(logits)[-1], dtype="int32")
        log_probs = forbid(log_probs, ids, self.special_ids.num_forbidden)
        lengths = ops.reshape(self.prompts.place(step, memory["prompts"]), (-1, 1))
        for i in self.allocators:
            arguments = log_probs, beam.live_ids, lengths, *memory["processors"][i]
            continuations = self.processors[i].allocate(continuations, *arguments)
        return continuations

    def _live_first(self, log_probs, parents, tokens, ends):
        """Returns those of the 2 N best that may live on, then those of the N best that end.

        Args:
            log_probs, parents, tokens, ends: `(B, 2 N)`, of the best continuations.
        """
        size = self.beam_size
        live_log_probs, live = ops.top_k(ops.where(ends, IMPOSSIBLE, log_probs), size)
        ended_log_probs = ops.where(ends[:, :size], log_probs[:, :size], IMPOSSIBLE)
        ended = ops.broadcast_to(ops.arange(size, dtype="int32"), ops.shape(live))
        order = ops.concatenate([ops.cast(live, "int32"), ended], axis=1)
        parents, tokens, ends = (backend.batch_gather(x, order) for x in (parents, tokens, ends))
        return ops.concatenate([live_log_probs, ended_log_probs], axis=1), parents, tokens, ends

    def _may_live(self, values):
        """Returns `(B, N, ...)`, the values of the candidates that may live on."""
        return values[:, : self.beam_size] if self.keep_beam_full else values

    def choose(self, beam, candidates, memory):
        """Returns the next `Beam`: candidates that have ended are finished, the others live on."""
        finished_ids, finished_scores = self._best_finished(beam, candidates)
        # Where the search has ended, the live ones stay as they are: if it ended at the limit, they
        # are answers too.
        log_probs = ops.where(candidates.ends, IMPOSSIBLE, candidates.log_probs)
        log_probs, ids, tokens = (
            self._may_live(x) for x in (log_probs, candidates.ids, candidates.tokens)
        )
        live_ids = ops.where(beam.active[:, None, None], ids, beam.live_ids)
        live_log_probs = ops.where(beam.active[:, None], log_probs, beam.live_log_probs)

        limits = memory["limits"]
        is_below_limit = candidates.lengths[:, 0] < limits
        can_win = self._can_win(live_log_probs, finished_scores, limits)
        active = beam.active & is_below_limit & can_win
        tokens = ops.where(active[:, None], tokens, self.special_ids.pad)
        return Beam(active, tokens, live_ids, live_log_probs, finished_ids, finished_scores)

    def _best_finished(self, beam, candidates):
        """Returns the ids and scores of the M best, of the finished and of those that end now."""
        scores = normalized_score(candidates.log_probs, candidates.lengths, *self.normalization)
        is_new = candidates.ends & beam.active[:, None]
        scores = ops.where(is_new, _if_possible(candidates.log_probs, scores), IMPOSSIBLE)
        scores = ops.concatenate([beam.finished_scores, scores], axis=1)
        ids = ops.concatenate([beam.finished_ids, candidates.ids], axis=1)
        scores, best = ops.top_k(scores, self.n_best)
        return backend.batch_gather(ids, ops.cast(best, "int32")), scores

    def _can_win(self, live_log_probs, finished_scores, limits):
        """Returns `(B,)` bool, whether a live hypothesis can still beat the worst finished one.

        Its log-probability only falls, and is divided by at most the penalty of the longest output.
        """
        best_live = ops.max(live_log_probs, axis=1)
        bound = normalized_score(best_live, limits, *self.normalization)
        return _if_possible(best_live, bound) > finished_scores[:, -1]

    def answer(self, beam):
        """Returns the `SearchResult`: the finished hypotheses, then live ones if M is not reached.

        Args:
            beam: the `Beam` after the last step.
        """
        n_best, special_ids = self.n_best, self.special_ids
        live_scores = normalized_score(
            beam.live_log_probs, self.limits[:, None], *self.normalization
        )
        live_scores, best = ops.top_k(_if_possible(beam.live_log_probs, live_scores), n_best)
        live_ids = backend.batch_gather(beam.live_ids, ops.cast(best, "int32"))

        places = ops.arange(n_best, dtype="int32")
        is_finished = ops.cast(beam.finished_scores > IMPOSSIBLE, "int32")
        num_finished = ops.sum(is_finished, axis=1, keepdims=True)
        order = ops.where(places < num_finished, places, n_best + places - num_finished)  # (B, M)
        scores = backend.batch_gather(
            ops.concatenate([beam.finished_scores, live_scores], axis=1), order
        )
        ids = backend.batch_gather(ops.concatenate([beam.finished_ids, live_ids], axis=1), order)
        ids = ops.where((scores > IMPOSSIBLE)[..., None], ids, special_ids.pad)
        has_ended = ops.any(ends_output(ids, special_ids.end), axis=-1)
        return SearchResult(ids, scores, count_tokens(ids, special_ids.pad), has_ended)


def _if_possible(log_probs, scores):
    """Returns `scores`, but `IMPOSSIBLE` where the log-probability says that there is none."""
    return ops.where(log_probs > IMPOSSIBLE / 2, scores, IMPOSSIBLE)
