"""An export, read back into Python."""

import json
import pathlib

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizers' operations

from keras_transformer.config import DecodingConfig
from keras_transformer.export.settings import SETTINGS, check_export
from keras_transformer.layers.whole_numbers import check_whole_numbers
from keras_transformer.translator import Translation


class ExportedTranslator:
    """Translates text with an export; called as a `Translator` is.

    Args:
        path: directory of one version, as `export_saved_model` returns it.
        batch_size: sentences translated at once.
    Attributes:
        settings: dict, what the export says of itself: versions, model, proof.
        decoding: the `DecodingConfig` of the search, which is fixed in the export.
        n_best: how many translations of a text can be had.
        signatures: from name to function of tensors, as `served_functions` describes them.
    Raises:
        ValueError: `path` holds no export, or a damaged one, or batch_size is below 1.

    Example:
        load("export/models/translator")(["A dog runs."])
    """

    def __init__(self, path, batch_size=64):
        self.path = pathlib.Path(path)
        try:
            self.settings = json.loads((self.path / SETTINGS).read_text())
        except FileNotFoundError:
            raise ValueError(
                f"Expected an export of this package. Received: path={path}, without {SETTINGS}."
            ) from None
        try:
            check_export(self.path)
        except ValueError as error:
            raise ValueError(
                f"Expected a whole export. Received: {self.path}, which is damaged ({error}). "
                "Export it again, or copy it again."
            ) from None
        self.decoding = DecodingConfig(**self.settings["decoding"])
        self.n_best = self.settings["n_best"]
        check_whole_numbers(batch_size=batch_size)
        self.batch_size = batch_size
        self._saved_model = tf.saved_model.load(self.path)  # owns what the signatures use
        self.signatures = self._saved_model.signatures

    def __reduce__(self):
        """For `pickle` and `copy`: the export is loaded again, from where it stands."""
        return type(self), (self.path, self.batch_size)

    def __call__(self, texts):
        """Returns the best translation of each text: list of str, or str for a str."""
        if isinstance(texts, str):
            return self([texts])[0]
        return [best.text for (best,) in self.translate(texts)]

    def translate(self, texts, n_best=1):
        """Returns for each text the list of its `n_best` `Translation`s, the best first.

        Args:
            texts: list of str.
            n_best: at most that of the export.
        """
        if not 1 <= n_best <= self.n_best:
            raise ValueError(
                f"Expected n_best from 1 to what was exported. Received: n_best={n_best}, and the "
                f"export has {self.n_best}. Export with a larger n_best."
            )
        if isinstance(texts, str):
            raise ValueError(f"Expected a list of texts. Received: {texts!r}. Put it in a list.")
        answers = [None] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))  # like lengths together
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            found = self._search([texts[i] for i in batch], n_best)
            for i, *hypotheses in zip(batch, *found, strict=True):
                answers[i] = [
                    Translation(text.decode(), float(score), bool(truncated))
                    for text, score, truncated in zip(*hypotheses, strict=True)
                ]
        return answers

    def _search(self, texts, n_best):
        """Returns NumPy `(B, n_best)`: translations, scores, and whether they were cut."""
        if n_best == 1:
            found = self.signatures["serving_default"](text=tf.constant(texts))
            return [found[key].numpy()[:, None] for key in ("translation", "score", "truncated")]
        found = self.signatures["n_best"](text=tf.constant(texts))
        return [found[key].numpy()[:, :n_best] for key in ("translations", "scores", "truncated")]


def load(directory):
    """Returns the `ExportedTranslator` of an export.

    Args:
        directory: one version, or a directory of versions, of which the highest is taken.
    Raises:
        ValueError: no export there.
    """
    directory = pathlib.Path(directory)
    if (directory / "saved_model.pb").exists():
        return ExportedTranslator(directory)
    versions = [path.parent for path in directory.glob("*/saved_model.pb")]
    versions = [path for path in versions if path.name.isdecimal()]
    if not versions:
        raise ValueError(
            "Expected an export: <version>/saved_model.pb, or one version's directory. "
            f"Received: directory={directory}"
        )
    return ExportedTranslator(max(versions, key=lambda path: int(path.name)))
