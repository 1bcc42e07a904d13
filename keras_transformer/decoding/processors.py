"""Processors steer a search: each changes the log-probabilities of the next token.

A processor is a pure function of the tensors of one step. Greedy search, beam search and sampling
take a list of them, and call each in turn before they choose:

    processor(log_probs, ids, lengths) -> log_probs

- log_probs: `(B, N, V)` float32, at most 0, of the token that follows each hypothesis.
- ids: `(B, N, L)` int32, the tokens of each hypothesis so far, without its prompt, then padding.
- lengths: `(B, 1)` or `(1, 1)` int32, how many they are; below 0 while a prompt goes on,
  when nothing that is returned has an effect.

It returns log-probabilities that are at most 0 too; `IMPOSSIBLE` for a token that may not be
chosen. They are not normalized again: the score of an output is the sum of what the processors
return. The answer to an input depends on its own rows alone, so a processor must not mix rows.

Shapes: B batch (inputs), N hypotheses of each input, L maximum output length, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from keras import ops

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.decoding.occurrences import has_token
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.types import Tensor

Processor: TypeAlias = Callable[[Any, Any, Any], Any]


class MinLength:
    """Lets no output end before it has a number of tokens, unless its limit is lower.

    Args:
        num_tokens: minimum tokens of an output, including the end token.
        end_id: the id of the end token.
    """

    def __init__(self, num_tokens: int, end_id: int) -> None:
        check_positive_integers(num_tokens=num_tokens)
        self.num_tokens = num_tokens
        self.end_id = end_id

    def __call__(self, log_probs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        is_end = ops.equal(ops.arange(ops.shape(log_probs)[-1]), self.end_id)  # (V,)
        is_short = (lengths + 1 < self.num_tokens)[..., None]
        return ops.where(is_short & is_end, IMPOSSIBLE, log_probs)


class NoRepeatNgram:
    """Forbids each token that would complete a sequence of n tokens which the output already has.

    See Paulus et al., 2018, section 2.5, https://arxiv.org/abs/1705.04304, with n = 3.

    Args:
        num_tokens: n.
    """

    def __init__(self, num_tokens: int) -> None:
        check_positive_integers(num_tokens=num_tokens)
        self.num_tokens = num_tokens

    def __call__(self, log_probs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        size = self.num_tokens
        max_length = ops.shape(ids)[-1]
        # Positions of n-grams that are too long for the output wrap around; none of them is used.
        starts = ops.arange(max_length, dtype="int32")  # (L,)
        is_repeated = starts + size <= lengths[..., None]
        for i in range(size - 1):  # whether all tokens but the last are those that stand at the end
            last = ops.maximum(lengths - (size - 1) + i, 0)
            last = ops.broadcast_to(last[..., None], (*ops.shape(ids)[:2], 1))
            is_same = ops.equal(ops.roll(ids, -i, axis=-1), ops.take_along_axis(ids, last, axis=-1))
            is_repeated = is_repeated & is_same
        completing = ops.roll(ids, 1 - size, axis=-1)
        is_forbidden = has_token(completing, is_repeated, ops.shape(log_probs)[-1])
        return ops.where(is_forbidden, IMPOSSIBLE, log_probs)


class RepetitionPenalty:
    """Multiplies the log-probability of each token that the output already has.

    This is the penalized sampling of CTRL (Keskar et al., 2019, section 4.1,
    https://arxiv.org/abs/1909.05858), which divides positive scores and multiplies negative ones;
    log-probabilities are never positive. As in `generate` of Hugging Face with a beam, it changes
    log-probabilities and not logits. The end token is never repeated.

    Args:
        penalty: theta, from 1, which changes nothing; the paper uses 1.2.
    Raises:
        ValueError: a penalty below 1.
    """

    def __init__(self, penalty: float) -> None:
        if not 1 <= penalty < math.inf:
            raise InputError(
                f"The penalty on repetition must be a number from 1. Received: {penalty=}. "
                "1 changes nothing."
            )
        self.penalty = penalty

    def __call__(self, log_probs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        is_used = ops.arange(ops.shape(ids)[-1], dtype="int32") < lengths[..., None]
        is_repeated = has_token(ids, is_used, ops.shape(log_probs)[-1])
        return ops.where(is_repeated, self.penalty * log_probs, log_probs)


def processors_from_config(config, special_ids):
    """Returns the list of processors that a `DecodingConfig` asks for.

    Args:
        special_ids: `SpecialIds` of the vocabulary; without an end token, outputs have no minimum.
    """
    processors = []
    if config.repetition_penalty != 1:
        processors.append(RepetitionPenalty(config.repetition_penalty))
    if config.no_repeat_ngram:
        processors.append(NoRepeatNgram(config.no_repeat_ngram))
    if config.min_length and special_ids.end is not None:
        processors.append(MinLength(config.min_length, special_ids.end))
    return processors
