"""Greedy search, and the loop that it shares with sampling and streaming.

Each follows one hypothesis of each input, token by token.

Shapes: B batch (inputs), P prompt length, N hypotheses of each input (1), L maximum output length,
V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.candidates import best_continuation
from keras_transformer.decoding.hypotheses import (
    DecodingStart,
    Search,
    SearchResult,
    count_tokens,
    ends_output,
)
from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.scoring import normalized_score
from keras_transformer.special_ids import OUR_SPECIAL_IDS, SpecialIds
from keras_transformer.types import Tensor


def greedy_search(
    step_fn: Callable[..., Any],
    state: Any,
    prompts: Tensor,
    limits: Tensor,
    max_length: Any,
    length_penalty: float = 0.6,
    special_ids: SpecialIds = OUR_SPECIAL_IDS,
    length_normalization: str = "gnmt",
    processors: Sequence[Processor] = (),
) -> SearchResult:
    """Returns one hypothesis of each input, made of the most probable token at every step.

    Gives the same result as `beam_search` with one hypothesis, faster: nothing is reordered.

    Args:
        step_fn, state, prompts, limits, max_length, special_ids: see `beam_search`; N is 1.
        length_penalty, length_normalization: see `beam_search`; they normalize the scores, and do
            not affect the choice.
        processors: functions that change log-probabilities, see `decoding.processors`.
    Returns:
        `SearchResult` with N = 1.
    """
    start = DecodingStart(step_fn, state, prompts, limits, max_length)
    search = SingleSearch(start, special_ids, most_probable, processors=processors)
    return search.run(length_penalty, length_normalization)


def most_probable(logits, place, choices, special_ids, are_log_probs):
    """Returns the most probable ids and their log-probabilities, each `(B,)`.

    Args:
        logits: `(B, 1, V)`.
        place, choices: have no effect.
        are_log_probs: whether `logits` are log-probabilities already.
    """
    log_probs, tokens = best_continuation(logits[:, 0], special_ids.num_forbidden, are_log_probs)
    return tokens[:, 0], log_probs[:, 0]


class Hypothesis(NamedTuple):
    """The one hypothesis of each input that a search follows, after some steps."""

    active: Any
    """`(B,)` bool, whether the search goes on."""
    tokens: Any
    """`(B, 1)` int32, the last token, which the next step reads."""
    ids: Any
    """`(B, L)` int32, the tokens so far, without the prompt."""
    log_probs: Any
    """`(B,)` float32, their summed log-probability."""


class SingleSearch(Search):
    """The steps of a search for one hypothesis of each input, which `run` and `stream` repeat.

    Args:
        start, special_ids, processors: see `Search`.
        choose: function of the logits `(B, 1, V)`, the position of the token in the output (a
            scalar or `(B,)`, see `Prompts.place`), `choices`, `special_ids` and `are_log_probs`.
            Returns ids and log-probabilities, each `(B,)`.
        choices: nested tensors `(B, ...)` that `choose` needs.
    """

    def __init__(self, start, special_ids, choose, choices=(), processors=()):
        super().__init__(start, special_ids, processors)
        self.memory["choices"] = choices
        self.choose = choose

    def start(self):
        """Returns the `Hypothesis` before the first step, which has no tokens."""
        batch_size = ops.shape(self.limits)[0]
        return Hypothesis(
            active=self.limits > 0,
            tokens=self.prompts.first_tokens(1),
            ids=ops.full((batch_size, self.max_length), self.special_ids.pad, dtype="int32"),
            log_probs=ops.zeros((batch_size,), dtype="float32"),
        )

    def append(self, step, hypothesis, cache, memory):
        """Makes one step; returns the `Hypothesis` with one token more, and the model's cache."""
        ids = hypothesis.ids[:, None]
        logits, cache = self.predict(step, hypothesis.tokens, ids, cache, memory)
        place = self.prompts.place(step, memory["prompts"])
        chosen, log_probs = self.choose(
            logits, place, memory["choices"], self.special_ids, self.are_log_probs
        )
        tokens, is_given = self.prompts.replace(step, memory["prompts"], chosen[:, None])
        ends = ends_output(tokens[:, 0], self.special_ids.end)
        if is_given is not None:
            log_probs = ops.where(is_given[:, 0], 0.0, log_probs)
            ends = ends & ~is_given[:, 0]
        active = hypothesis.active
        tokens = ops.where(active[:, None], tokens, self.special_ids.pad)
        is_place = ops.equal(self.positions, ops.reshape(place, (-1, 1)))
        hypothesis = Hypothesis(
            active=active & ~ends & (place + 1 < memory["limits"]),
            tokens=tokens,
            ids=ops.where(is_place, tokens, hypothesis.ids),
            log_probs=hypothesis.log_probs + ops.where(active, log_probs, 0.0),
        )
        return hypothesis, cache

    def run(self, length_penalty, length_normalization):
        """Appends tokens until each output has ended or reached its limit: the `SearchResult`."""
        _, _, ids, log_probs = backend.search_loop(
            self.append, self.start(), self.cache, self.memory, 1, self.num_steps
        )
        lengths = count_tokens(ids, self.special_ids.pad)
        scores = normalized_score(log_probs, lengths, length_penalty, length_normalization)
        finished = ops.any(ends_output(ids, self.special_ids.end), axis=-1)
        return SearchResult(*(x[:, None] for x in (ids, scores, lengths, finished)))
