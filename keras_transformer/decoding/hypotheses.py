"""What every search begins and ends with: the prompts that it continues, and its result.

Shapes: B batch (inputs), P prompt length, N hypotheses of each input, L maximum output length.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.special_ids import PAD_ID

IMPOSSIBLE = -1e9
"""Replaces log(0), for tokens that may not be chosen. Finite, so that no difference is NaN."""


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


def last_prompt_step(prompts, pad_id):
    """Returns the index of the first prompt's last token; the step reading it is a search's own."""
    return sum(token != pad_id for token in ops.convert_to_numpy(prompts)[0].tolist()) - 1
