"""An export as a SavedModel, read back into Python."""

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizers' operations

from keras_transformer import backend
from keras_transformer.backend.parallel_calls import first_call_locked, parallel_calls
from keras_transformer.decoding.batch_search import length_batches
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.translation.base_translator import Translation, list_of_texts
from keras_transformer.translation.exported_translator import ExportedTranslator
from keras_transformer.types import StrPath

BATCH_SIZE = 64
"""Texts translated at once."""


class SavedModelTranslator(ExportedTranslator):
    """Translates text with a SavedModel, written by `export_saved_model`.

    Attributes:
        signatures: dict from name to function of tensors; `Signatures` describes them.

    Example:
        load("export/models/translator")(["A dog runs."])
    """

    def __init__(self, path: StrPath) -> None:
        super().__init__(path)
        self._saved_model = tf.saved_model.load(self.path)  # keeps the signatures' variables alive
        self.signatures = self._saved_model.signatures
        self._compiled = {
            name: first_call_locked(function) for name, function in self.signatures.items()
        }

    def _threads(self):
        return parallel_calls(backend.num_search_threads())

    def _submit(self, n_best, terms, submit, texts, prefixes):
        texts = list_of_texts(texts)
        lengths = [len(text) for text in texts]
        batches = [
            (indices, submit(self._search, [texts[i] for i in indices], n_best))
            for indices in length_batches(lengths, BATCH_SIZE, backend.num_search_threads())
        ]

        def answers():
            found = [[Translation("", 0.0, False)] for _ in texts]
            for indices, result in batches:
                for i, translations in zip(indices, result(), strict=True):
                    found[i] = translations
            return found

        return answers

    def _search(self, texts, n_best):
        """Returns the list of the best `Translation`s of each text."""
        name, outputs = "serving_default", ("translation", "score", "truncated")
        if n_best > 1:
            name, outputs = "n_best", ("translations", "scores", "truncated")
        found = self._compiled[name](text=tf.constant(texts))
        columns = (found[output].numpy().reshape(len(texts), -1)[:, :n_best] for output in outputs)
        return [
            [
                Translation(text.decode(), float(score), bool(truncated))
                for text, score, truncated in zip(*hypotheses, strict=True)
                if score != IMPOSSIBLE
            ]
            for hypotheses in zip(*columns, strict=True)
        ]
