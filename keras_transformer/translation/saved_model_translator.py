"""An export as a SavedModel, read back into Python."""

import re

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizers' operations

from keras_transformer import backend
from keras_transformer.backend.parallel_calls import first_call_locked, parallel_calls
from keras_transformer.decoding.batch_search import length_batches
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.errors import InputError
from keras_transformer.translation.base_translator import Translation, list_of_texts
from keras_transformer.translation.explanation import Explanation, Word
from keras_transformer.translation.exported_translator import ExportedTranslator
from keras_transformer.translation.terminology import Terminology
from keras_transformer.types import StrPath

REFUSAL = re.compile(r"assertion failed: \[(.*)\]")
"""What a graph says of inputs that it refuses."""
BATCH_SIZE = 64
"""Texts translated at once."""


class SavedModelTranslator(ExportedTranslator):
    """Translates text with a SavedModel, written by `export_saved_model`.

    Attributes:
        signatures: dict from name to function of tensors; `Signatures` describes them.

    Example:
        load("export/models/translator")(["A dog runs."])
    """

    can_be_steered = True

    def __init__(self, path: StrPath, num_threads: int | None = None) -> None:
        super().__init__(path, num_threads)
        if num_threads is not None:
            backend.one_thread_per_operation()
        self._saved_model = tf.saved_model.load(self.path)  # keeps the signatures' variables alive
        self.signatures = self._saved_model.signatures
        self._compiled = {
            name: first_call_locked(function) for name, function in self.signatures.items()
        }

    def _threads(self):
        return parallel_calls(self._num_searches())

    def _submit(self, n_best, terms, submit, texts, prefixes):
        texts = list_of_texts(texts)
        others = {}
        if prefixes is not None or terms is not None:
            if n_best > 1:
                raise InputError(
                    "Expected one translation of each text with prefixes or terms, as the export "
                    f"gives. Received: n_best={n_best}. Leave it out, or translate with the run."
                )
            others = _constraints(texts, prefixes, terms)
        inputs = {"text": texts, **others}

        def translate(indices):
            return self._search(
                {name: [each[i] for i in indices] for name, each in inputs.items()}, n_best
            )

        batches = [(indices, submit(translate, indices)) for indices in self._batches(texts)]

        def answers():
            found = [[Translation("", 0.0, False)] for _ in texts]
            for indices, result in batches:
                for i, translations in zip(indices, result(), strict=True):
                    found[i] = translations
            return found

        return answers

    def _num_searches(self):
        return self.num_threads or backend.num_search_threads()

    def _batches(self, texts):
        return length_batches([len(text) for text in texts], BATCH_SIZE, self._num_searches())

    def _search(self, inputs, n_best):
        """Returns the list of the best `Translation`s of each text."""
        name, outputs = "serving_default", ("translation", "score", "truncated")
        if n_best > 1:
            name, outputs = "n_best", ("translations", "scores", "truncated")
        found = self._answer("constrained" if len(inputs) > 1 else name, inputs)
        columns = (found[output].reshape(len(inputs["text"]), -1)[:, :n_best] for output in outputs)
        return [
            [
                Translation(text.decode(), float(score), bool(truncated))
                for text, score, truncated in zip(*hypotheses, strict=True)
                if score != IMPOSSIBLE
            ]
            for hypotheses in zip(*columns, strict=True)
        ]

    def _explain(self, sources, targets):
        explained = [Explanation([], []) for _ in sources]
        for indices in self._batches(sources):
            text, target = ([side[i] for i in indices] for side in (sources, targets))
            found = self._answer("explain", {"text": text, "target": target})
            names = "source_words", "words", "word_scores", "alignment", "attention"
            columns = [found[name] for name in (*names, "token_alignment")]
            for i, *row in zip(indices, *columns, strict=True):
                explained[i] = _explanation(*row)
        return explained

    def _have_unknown(self, texts):
        ids = self._answer("encode", {"text": texts})["ids"]
        return np.isin(ids, self.settings["unknown_ids"]).any(axis=1)

    def _answer(self, name, inputs):
        """Returns the outputs of a signature as NumPy arrays."""
        try:
            found = self._compiled[name](
                **{key: tf.constant(x, tf.string) for key, x in inputs.items()}
            )
        except tf.errors.InvalidArgumentError as error:
            refusal = REFUSAL.search(error.message)
            if refusal is None:
                raise
            raise InputError(refusal[1]) from None
        return {key: tensor.numpy() for key, tensor in found.items()}


def _constraints(texts, prefixes, terms):
    """Returns the further inputs of the signature `constrained`."""
    cells = [[] for _ in texts]
    if terms is not None:
        terminology = Terminology.of(terms)
        cells = [terminology.cells(text) for text in texts]
    width = max([1, *map(len, cells)])
    cells = [row + [""] * (width - len(row)) for row in cells]
    return {"prefix": prefixes or [""] * len(texts), "terms": cells}


def _explanation(source_words, words, scores, alignment, attention, token_alignment):
    source_words, words = map(_without_padding, (source_words, words))
    columns = zip(words, scores, alignment, strict=False)
    found = [Word(word, float(x), None if i < 0 else int(i)) for word, x, i in columns]
    attention = attention[: len(words), : len(source_words)]
    tokens = token_alignment[token_alignment >= 0].tolist()
    return Explanation(source_words, found, attention if attention.any() else None, tokens)


def _without_padding(words):
    size = max((i for i, word in enumerate(words, start=1) if word), default=0)
    return [word.decode() for word in words[:size]]
