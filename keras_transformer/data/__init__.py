"""Sentence pairs, from where they are read to the batches that a model trains on."""

from keras_transformer.data.batches import TranslationBatches
from keras_transformer.data.examples import training_example
from keras_transformer.data.parallel import CorpusSummary, ParallelCorpus, read_lines

__all__ = [
    "CorpusSummary",
    "ParallelCorpus",
    "TranslationBatches",
    "read_lines",
    "training_example",
]
