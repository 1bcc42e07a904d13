"""What a search is told of each of its inputs, such as a prefix or terms of its output.

What is known of the vocabulary, and of the inputs, are two objects: the second gives arrays for a
batch, of which the first makes a processor. A graph can make the arrays from strings instead.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from keras_transformer.decoding.processors import Processor
from keras_transformer.types import Tensor


class SteeringVocabulary(Protocol):
    """What a search knows of the vocabulary, such as `PrefixVocabulary`."""

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
