"""The result of every search.

Shapes: B batch (inputs), N hypotheses of each input, L maximum output length.
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
