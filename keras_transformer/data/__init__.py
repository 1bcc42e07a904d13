"""Sentence pairs and texts: from files to the batches that a model trains on."""

from keras_transformer.data.batches import TranslationBatches
from keras_transformer.data.graph_examples import bert_inputs, training_example
from keras_transformer.data.masked_tokens import MaskedTokenBatches, mask_id, mask_tokens
from keras_transformer.data.parallel import CorpusSummary, ParallelCorpus
from keras_transformer.data.prepared import PreparedBatches, PreparedCorpus
from keras_transformer.data.text_windows import TextWindows

__all__ = [
    "CorpusSummary",
    "MaskedTokenBatches",
    "ParallelCorpus",
    "PreparedBatches",
    "PreparedCorpus",
    "TextWindows",
    "TranslationBatches",
    "bert_inputs",
    "mask_id",
    "mask_tokens",
    "training_example",
]
