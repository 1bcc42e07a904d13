"""Processors steer a search: each changes the log-probabilities of the next token.

A processor is a pure function of the tensors of one step. Greedy search, beam search and sampling
take a list of them, and call each in turn before they choose:

    processor(log_probs, ids, lengths) -> log_probs

- log_probs: `(B, N, V)` float32, at most 0, of the token that follows each hypothesis.
- ids: `(B, N, L)` int32, the tokens of each hypothesis so far, without its prompt, then padding.
- lengths: `(B, 1)` or `(1, 1)` int32, how many they are; below 0 while a prompt goes on,
  when nothing that is returned has an effect.

A processor that knows something of each input has an attribute `memory`, a tuple of tensors
`(B, ...)`, which are further arguments: a search that drops ended inputs drops their rows too.

One that shall decide which hypotheses a beam keeps has a method `allocate`, see `Terms` in
`decoding.terms`.

It returns log-probabilities that are at most 0 too; `IMPOSSIBLE` for a token that may not be
chosen. They are not normalized again: the score of an output is the sum of what the processors
return. The answer to an input depends on its own rows alone, so a processor must not mix rows.

Shapes: B batch (inputs), N hypotheses of each input, L maximum output length, V vocabulary.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from keras import ops

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.types import Tensor

Processor: TypeAlias = Callable[..., Any]


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


def has_token(ids, is_marked, vocab_size):
    """Returns `(B, N, V)` bool: which tokens stand at the marked positions of each hypothesis.

    Args:
        ids: `(B, N, L)` int32.
        is_marked: `(B, N, L)` bool, or what broadcasts to it.
        vocab_size: V.
    """
    batch_size, num_hypotheses, length = ops.shape(ids)
    num_rows = batch_size * num_hypotheses
    tokens = ops.where(is_marked, ids, vocab_size)  # the others: a token that is cut off below
    row_starts = ops.arange(num_rows, dtype="int32")[:, None] * (vocab_size + 1)
    places = ops.reshape(tokens, (num_rows, length)) + row_starts
    is_there = ops.scatter_update(
        ops.zeros((num_rows * (vocab_size + 1),), dtype="bool"),
        ops.reshape(places, (num_rows * length, 1)),
        ops.ones((num_rows * length,), dtype="bool"),
    )
    is_there = ops.reshape(is_there, (batch_size, num_hypotheses, vocab_size + 1))
    return is_there[..., :-1]


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


class SteeringVocabulary(Protocol):
    """What a search knows of the vocabulary, such as `PrefixVocabulary`.

    It makes a processor from the arrays that `SteeredRows` give for a batch, or that a graph makes
    from strings.
    """

    NUM_ARRAYS: ClassVar[int]
    """The number of arrays of a batch."""
    BEAM_SIZE: ClassVar[int]
    """Hypotheses of the search, at least."""

    def options(self, *arrays: Tensor) -> tuple[dict[str, Any], Processor]:
        """Returns further arguments of `decode`, and a processor, from the arrays of a batch."""


class SteeredRows(Protocol):
    """What a search knows of a list of inputs, such as `Prefixes`."""

    vocabulary: Any

    def arrays(self, indices: Sequence[int], num_rows: int) -> Sequence[Any]:
        """Returns `NUM_ARRAYS` arrays of a batch: of some inputs, and of rows without any."""


def config_for(config, vocabularies):
    """Returns a `DecodingConfig` whose beam is wide enough for the vocabularies."""
    widest = max([config.beam_size, *(vocabulary.BEAM_SIZE for vocabulary in vocabularies)])
    return dataclasses.replace(config, beam_size=widest)


def options_of(vocabularies, arrays, processors=()):
    """Returns the arguments of `decode` that steer the search of a batch: dict.

    Args:
        vocabularies: list of `SteeringVocabulary`.
        arrays: their arrays of the batch, one after the other.
        processors: those that come before.
    """
    options = {"processors": [*processors]}
    for vocabulary in vocabularies:
        own, arrays = arrays[: vocabulary.NUM_ARRAYS], arrays[vocabulary.NUM_ARRAYS :]
        more, processor = vocabulary.options(*own)
        options |= more
        options["processors"].append(processor)
    return options
