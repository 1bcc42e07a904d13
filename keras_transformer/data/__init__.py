"""Sentence pairs and texts: from files to the batches that a model trains on."""

from keras_transformer.data.batches import TranslationBatches
from keras_transformer.data.masked_tokens import MaskedTokenBatches, mask_id, mask_tokens
from keras_transformer.data.parallel import CorpusSummary, ParallelCorpus
from keras_transformer.data.prepared import PreparedBatches, PreparedCorpus
from keras_transformer.data.text_windows import TextWindows
from keras_transformer.data.tf_data import bert_inputs, training_example

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
