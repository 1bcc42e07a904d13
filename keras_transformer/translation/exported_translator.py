"""An export, read back into Python."""

import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import overload

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizers' operations

from keras_transformer import backend
from keras_transformer.backend.parallel_calls import first_call_locked, parallel_calls, prefetched
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.batch_search import length_batches
from keras_transformer.errors import InputError
from keras_transformer.files.checksums import check_export
from keras_transformer.files.text import without_surrogates
from keras_transformer.files.version_numbers import EXPORT_SETTINGS
from keras_transformer.translation.translator import Translation
from keras_transformer.types import StrPath, Texts

BATCH_SIZE = 64
"""Texts translated at once."""


class ExportedTranslator:
    """Translates text with an export, and is called like a `Translator`.

    Args:
        path: directory of one version, as returned by `export_saved_model`.
    Attributes:
        settings: dict from `assets.extra/keras_transformer.json`: versions, model, verification.
        decoding: the `DecodingConfig` of the search, which is fixed in the export.
        n_best: maximum number of translations of a text.
        signatures: dict from name to function of tensors; `served_functions` describes them.
    Raises:
        ValueError: `path` is not an export, or it is damaged.

    Example:
        load("export/models/translator")(["A dog runs."])
    """

    def __init__(self, path: StrPath) -> None:
        self.path = pathlib.Path(path)
        try:
            self.settings = json.loads((self.path / EXPORT_SETTINGS).read_text())
        except FileNotFoundError:
            raise InputError(
                f"Expected an export of this package. Received: path={path}, without "
                f"{EXPORT_SETTINGS}."
            ) from None
        except ValueError as error:
            raise _damaged(self.path, error) from None
        if "n_best" not in self.settings:
            raise InputError(
                f"Expected an export of a translator. Received: path={path}, an export of another "
                "model. Load it with tf.saved_model.load, or serve it."
            )
        try:
            check_export(self.path)
        except ValueError as error:
            raise _damaged(self.path, error) from None
        self.decoding = DecodingConfig(**self.settings["decoding"])
        self.n_best = self.settings["n_best"]
        self._load()

    def _load(self):
        self._saved_model = tf.saved_model.load(self.path)  # keeps the signatures' variables alive
        self.signatures = self._saved_model.signatures
        self._compiled = {
            name: first_call_locked(function) for name, function in self.signatures.items()
        }

    def __reduce__(self):
        """For `pickle` and `copy`: the export is loaded again from its path."""
        return type(self), (self.path,)

    @overload
    def __call__(self, texts: str) -> str: ...

    @overload
    def __call__(self, texts: Texts) -> list[str]: ...

    def __call__(self, texts: str | Texts) -> str | list[str]:
        """Returns the best translation of each text: list of str, or str for a str."""
        if isinstance(texts, str):
            return self([texts])[0]
        return [best.text for (best,) in self.translate(texts)]

    def translate(self, texts: Texts, n_best: int = 1) -> list[list[Translation]]:
        """Returns for each text the list of its `n_best` `Translation`s, the best first.

        Args:
            texts: list of str.
            n_best: int, at most `self.n_best`.
        """
        (answers,) = self.translate_chunks([texts], n_best)
        return answers

    def translate_chunks(
        self, chunks: Iterable[Texts], n_best: int = 1
    ) -> Iterator[list[list[Translation]]]:
        """Yields the translations of each chunk, as `Translator.translate_chunks` does."""
        if not 1 <= n_best <= self.n_best:
            raise InputError(
                f"Expected n_best from 1 to that of the export, {self.n_best}. "
                f"Received: n_best={n_best}. Export with a larger n_best."
            )
        with parallel_calls(backend.num_search_threads()) as begin:
            for texts, batches in prefetched(self._begin(begin, texts, n_best) for texts in chunks):
                answers = [[Translation("", 0.0, False)] * n_best for _ in texts]
                for indices, result in batches:
                    for i, translations in zip(indices, result(), strict=True):
                        answers[i] = translations
                yield answers

    def _begin(self, begin, texts, n_best):
        """Returns the texts, and the indices of each batch with a function that translates it.

        Args:
            begin: the function that `parallel_calls` yields.
        """
        if isinstance(texts, str | bytes):
            raise InputError(f"Expected a list of texts. Received: {texts!r}. Put it in a list.")
        texts = [without_surrogates(text) for text in texts]
        return texts, [
            (indices, begin(self._search, [texts[i] for i in indices], n_best))
            for indices in self._batches(texts)
        ]

    def _batches(self, texts):
        """Returns the list of the indices of each batch."""
        lengths = [len(text) for text in texts]
        return length_batches(lengths, BATCH_SIZE, backend.num_search_threads())

    def _search(self, texts, n_best):
        """Returns the list of the `n_best` `Translation`s of each text."""
        name, outputs = "serving_default", ("translation", "score", "truncated")
        if n_best > 1:
            name, outputs = "n_best", ("translations", "scores", "truncated")
        found = self._compiled[name](text=tf.constant(texts))
        columns = (found[output].numpy().reshape(len(texts), -1)[:, :n_best] for output in outputs)
        return [
            [
                Translation(text.decode(), float(score), bool(truncated))
                for text, score, truncated in zip(*hypotheses, strict=True)
            ]
            for hypotheses in zip(*columns, strict=True)
        ]


def _damaged(path, error):
    return InputError(
        f"Expected a whole export. Received: {path}, which is damaged ({error}). "
        "Export it again, or copy it again."
    )
