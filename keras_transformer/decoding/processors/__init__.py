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

One that shall decide which hypotheses a beam keeps has a method `allocate`, see `Terms`.

It returns log-probabilities that are at most 0 too; `IMPOSSIBLE` for a token that may not be
chosen. They are not normalized again: the score of an output is the sum of what the processors
return. The answer to an input depends on its own rows alone, so a processor must not mix rows.

Shapes: B batch (inputs), N hypotheses of each input, L maximum output length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from keras_transformer.decoding.processors.min_length import MinLength
from keras_transformer.decoding.processors.no_repeat_ngram import NoRepeatNgram
from keras_transformer.decoding.processors.prefix import Prefix
from keras_transformer.decoding.processors.repetition_penalty import RepetitionPenalty
from keras_transformer.decoding.processors.terms import Terms

Processor: TypeAlias = Callable[..., Any]

__all__ = [
    "MinLength",
    "NoRepeatNgram",
    "Prefix",
    "Processor",
    "RepetitionPenalty",
    "Terms",
    "processors_from_config",
]


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
