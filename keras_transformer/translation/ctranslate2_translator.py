"""An export for CTranslate2, read back into Python."""

from keras_transformer.errors import InputError
from keras_transformer.translation.exported_translator import ExportedTranslator
from keras_transformer.translation.translator import Translation


class CTranslate2Translator(ExportedTranslator):
    """Translates text with an export for CTranslate2, and is called like a `Translator`.

    CTranslate2 uses all cores that the process may use: each translates one batch.
    `CTranslate2Search` says how its search differs.

    Args:
        path: directory of one version, as returned by `export_ctranslate2`.
    Attributes:
        settings, decoding, n_best: see `ExportedTranslator`. There are no signatures.
    Raises:
        ValueError: `path` is not such an export, it is damaged, or CTranslate2 is not installed.

    Example:
        load("export/models/fast")(["A dog runs."])
    """

    def _load(self):
        ctranslate2_library()
        from keras_transformer.translation.ctranslate2_search import CTranslate2Search

        self._ctranslate2 = CTranslate2Search(self.path, self.settings)

    def _batches(self, texts):
        return [range(len(texts))]  # CTranslate2 makes batches itself

    def _search(self, texts, n_best):
        return [
            [Translation(*hypothesis) for hypothesis in hypotheses]
            for hypotheses in self._ctranslate2.translate(texts, n_best)
        ]


def ctranslate2_library():
    """Returns the module `ctranslate2`; raises `InputError` where it is not installed."""
    try:
        import ctranslate2
    except ModuleNotFoundError as error:
        raise InputError(
            f"Expected the library ctranslate2. Received: {error}. "
            'Install it, in the clone of this package: pip install ".[ctranslate2]".'
        ) from None
    return ctranslate2
