"""What every search begins and ends with: the prompts that it continues, and its result.

Shapes: B batch (inputs), P prompt length, N hypotheses of each input, L maximum output length.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer import backend
from keras_transformer.layers import DecodingState
from keras_transformer.special_ids import PAD_ID

IMPOSSIBLE = -1e9
"""Replaces log(0), for tokens that may not be chosen. Finite, so that no difference is NaN."""


class DecodingStart(NamedTuple):
    """The first arguments of a search; `start_decoding` of a model returns them."""

    step_fn: Any
    """Function of the previous tokens `(B, N)`, the step and the state, see `beam_search`."""
    state: Any
    """`DecodingState` before the first step."""
    prompts: Any
    """`(B, P)` int32, the tokens that each output continues, padded at the end."""
    limits: Any
    """`(B,)` int32, maximum tokens of each output, including the end token, without the prompt."""
    max_length: Any
    """L, at least as large as every limit: an int, or on TensorFlow an int scalar."""


class SearchResult(NamedTuple):
    """The hypotheses of each input, the best first; finished ones come before the others.

    If the vocabulary allows fewer hypotheses than requested, the rest have length 0 and the score
    `IMPOSSIBLE`.
    """

    ids: Any
    """`(B, N, L)` int32: the tokens and the end token, then padding; without the prompt."""

    scores: Any
    """`(B, N)` float32: summed log-probability, including the end token, divided by the length
    penalty."""

    lengths: Any
    """`(B, N)` int32: number of tokens, including the end token."""

    finished: Any
    """`(B, N)` bool: True if the end token ended the hypothesis, False if its limit did."""


def ends_output(ids, end_id):
    """Returns bool of the shape of `ids`: whether each is the end token, if there is one."""
    return ops.zeros_like(ids, dtype="bool") if end_id is None else ops.equal(ids, end_id)


def count_tokens(ids, pad_id=PAD_ID):
    """Returns the number of tokens of `ids` `(..., L)`, including the end token, as int32."""
    return ops.sum(ops.cast(ops.not_equal(ids, pad_id), "int32"), axis=-1)


class Prompts:
    """Feeds prompts, the tokens that outputs continue, to a search, one token per step.

    They may have any lengths. Where a prompt ends, the search takes over.
    Prompts of one token, such as the start token of a translation, cost nothing.

    Args:
        ids: `(B, P)`, integers, padded at the end; at least one token in each row.
        pad_id: the id of padding.
    Attributes:
        num_extra_steps: P - 1, the steps that the longest prompt adds to a search.
        memory: dict of tensors `(B, ...)`, which the other methods need in each step.
    """

    def __init__(self, ids, pad_id=PAD_ID):
        self._pad_id = pad_id
        self._ids = ops.cast(ids, "int32")
        self._is_one_token = self._ids.shape[1] == 1
        self.num_extra_steps = 0 if self._is_one_token else ops.shape(self._ids)[1] - 1
        self.memory = {}
        if not self._is_one_token:
            lengths = ops.sum(ops.cast(ops.not_equal(self._ids, pad_id), "int32"), axis=1)
            next_ids = ops.pad(self._ids[:, 1:], ((0, 0), (0, 1)), constant_values=pad_id)
            self.memory = {"next_ids": next_ids, "lengths": lengths}

    def first_tokens(self, num_hypotheses):
        """Returns `(B, N)`, the token that the first step reads."""
        return ops.repeat(self._ids[:, :1], num_hypotheses, axis=1)

    def place(self, step, memory):
        """Returns the position in the output, from 0, of the token that `step` chooses.

        A scalar if all prompts have one token, otherwise `(B,)`; below 0 while a prompt goes on.
        """
        return step if self._is_one_token else step + 1 - memory["lengths"]

    def replace(self, step, memory, tokens):
        """Replaces the chosen tokens of inputs whose prompts still go on by the prompts' tokens.

        Args:
            tokens: `(B, N)`, the tokens that the search has chosen in this step.
        Returns:
            `(tokens, is_given)`: `(B, N)`, and bool `(B, 1)`, True where the prompt gave the token;
            None if all prompts have one token.
        """
        if self._is_one_token:
            return tokens, None
        last = ops.shape(memory["next_ids"])[1] - 1
        given = ops.take(memory["next_ids"], ops.minimum(step, last), axis=1)[:, None]
        is_given = ops.not_equal(given, self._pad_id)
        return ops.where(is_given, given, tokens), is_given

    def last_step(self):
        """Returns the index of the first prompt's last token: the step that reads it chooses."""
        ids = ops.convert_to_numpy(self._ids)[0].tolist()
        return sum(token != self._pad_id for token in ids) - 1


class Search:
    """What the searches have in common: a subclass makes the steps.

    Args:
        start: `DecodingStart`.
        special_ids: `SpecialIds` of the vocabulary.
        processors: list of functions that change log-probabilities, see `decoding.processors`.
    Attributes:
        cache: the model's cache before the first step.
        memory: what each step reads and does not change: nested tensors `(B, ...)`.
        num_steps: L + P - 1.
        are_log_probs: bool, whether `predict` returns log-probabilities instead of logits.
    """

    def __init__(self, start, special_ids, processors=()):
        self.step_fn, state, prompts, limits, self.max_length = start
        self.special_ids = special_ids
        self.processors = processors
        self.are_log_probs = bool(processors)
        self.prompts = Prompts(prompts, special_ids.pad)
        self.limits = ops.minimum(ops.cast(limits, "int32"), self.max_length)
        self.positions = ops.arange(self.max_length, dtype="int32")  # (L,)
        self.num_steps = self.max_length + self.prompts.num_extra_steps
        self.cache = state.cache
        self.memory = {
            "model": state.memory,
            "limits": self.limits,
            "prompts": self.prompts.memory,
            "processors": [getattr(processor, "memory", ()) for processor in processors],
        }

    def predict(self, step, tokens, ids, cache, memory):
        """Asks the model for the token after the `tokens` `(B, N)`, and then the processors.

        Args:
            ids: `(B, N, L)`, the tokens of each hypothesis so far.
        Returns:
            `(B, N, V)` float32, logits without processors and log-probabilities with them; and the
            model's cache after the step.
        """
        logits, state = self.step_fn(tokens, step, DecodingState(cache, memory["model"]))
        if self.processors:
            logits = ops.log_softmax(logits)
            lengths = ops.reshape(self.prompts.place(step, memory["prompts"]), (-1, 1))
            for processor, tensors in zip(self.processors, memory["processors"], strict=True):
                logits = processor(logits, ids, lengths, *tensors)
        return logits, state.cache

    def one_by_one(self, advance, state):
        """Makes the steps for one input, outside of any compiled function.

        Args:
            advance: the `body` of `backend.search_loop`.
            state: named tuple of tensors `(B, ...)` before the first step.
        Yields:
            The index of each step, an int, and the state after it.
        """
        cache, step = self.cache, 0
        while bool(state.active[0]):
            cache = backend.extend_cache(cache, step)
            step_tensor = ops.convert_to_tensor(step, dtype="int32")
            state, cache = advance(step_tensor, state, cache, self.memory)
            yield step, state
            step += 1
