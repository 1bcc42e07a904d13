"""An export, read back into Python: what is common to all formats, and that of CTranslate2."""

import hashlib
import json
import pathlib

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError, check_positive_integers, import_library
from keras_transformer.files.checksums import CHECKSUMS, check_export
from keras_transformer.files.regular import is_named, read_regular
from keras_transformer.files.version_numbers import EXPORT_SETTINGS
from keras_transformer.translation.base_translator import BaseTranslator, Translation, list_of_texts
from keras_transformer.types import StrPath


class ExportedTranslator(BaseTranslator):
    """Translates text with an export, and is called like a `Translator`.

    Args:
        path: directory of one version.
        num_threads: number of threads that translate; None: one for each core that the process may
            use. With a number, a SavedModel also computes each operation in one thread.
    Attributes:
        settings: dict from `assets.extra/keras_transformer.json`: versions, model, verification.
        decoding: the `DecodingConfig` of the search, which is fixed in the export.
        n_best: maximum number of translations of a text.
    Raises:
        ValueError: `path` is not an export of a translator, or it is damaged.
    """

    def __init__(self, path: StrPath, num_threads: int | None = None) -> None:
        check_positive_integers(("num_threads",), num_threads=num_threads)
        self.path, self.num_threads = pathlib.Path(path), num_threads
        if not is_named(path, EXPORT_SETTINGS):
            raise InputError(
                f"Expected an export of this package. Received: path={path}, without "
                f"{EXPORT_SETTINGS}."
            )
        content = read_regular(path, EXPORT_SETTINGS, "the settings of an export")
        try:
            self.settings = json.loads(content)
            if "n_best" in self.settings:
                check_export(self.path)
        except ValueError as error:
            raise InputError(
                f"Expected a whole export. Received: {path}, which is damaged ({error}). "
                "Export it again, or copy it again."
            ) from None
        if "n_best" not in self.settings:
            raise InputError(
                f"Expected an export of a translator. Received: path={path}, an export of another "
                "model. Load it with tf.saved_model.load, or serve it."
            )
        self.decoding = DecodingConfig(**self.settings["decoding"])
        self.n_best = self.settings["n_best"]

    def __reduce__(self):
        """For `pickle` and `copy`: the export is loaded again from its path."""
        return type(self), (self.path, self.num_threads)

    def checksum(self) -> str:
        return checksum_of_export(self.path)

    def _limit_of_n_best(self):
        return f"exported with n_best={self.n_best}. Export with a larger n_best."


def checksum_of_export(path: StrPath) -> str:
    """Returns the `checksum` of the translator of one version of an export, which is not loaded."""
    content = read_regular(path, CHECKSUMS, "the checksums of an export")
    return hashlib.sha256(content).hexdigest()


class CTranslate2Translator(ExportedTranslator):
    """Translates text with an export for CTranslate2; it needs neither TensorFlow nor Keras.

    CTranslate2 uses all cores that the process may use: each translates one batch.
    `CTranslate2Search` says how its search differs.

    Raises:
        ValueError: also if CTranslate2 is not installed.

    Example:
        load("export/models/fast")(["A dog runs."])
    """

    def __init__(self, path: StrPath, num_threads: int | None = None) -> None:
        super().__init__(path, num_threads)
        options = {} if num_threads is None else {"num_threads": num_threads}
        self._search = ctranslate2_search(self.path, self.settings, **options)

    def _submit(self, n_best, terms, submit, texts, prefixes):
        answers = self._search.submit(list_of_texts(texts), n_best)
        return lambda: [[Translation(*each) for each in row] for row in answers()]

    def _have_unknown(self, texts):
        return list(map(self._search.has_unknown, texts))


def ctranslate2_search(path, settings, **options):
    """Returns the `CTranslate2Search` of a version; `ValueError` without the library."""
    import_library("ctranslate2")
    from keras_transformer.translation.ctranslate2_search import CTranslate2Search

    return CTranslate2Search(path, settings, **options)
