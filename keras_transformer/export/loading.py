"""Reads the export of a translator, in whichever format it was written."""

import pathlib

from keras_transformer.errors import InputError
from keras_transformer.export.ctranslate2_translator import CTranslate2Translator
from keras_transformer.export.exported_translator import ExportedTranslator
from keras_transformer.types import StrPath
from keras_transformer.version_numbers import (
    CTRANSLATE2_MODEL,
    SAVED_MODEL,
    is_version,
    remedy_for,
    versions_in,
)


def load(directory: StrPath) -> ExportedTranslator:
    """Returns the `ExportedTranslator` of an export; that of CTranslate2 is its subclass.

    Args:
        directory: one version, or a directory of versions, of which the highest is loaded.
    Raises:
        ValueError: there is no export.
    """
    path = pathlib.Path(directory)
    if not is_version(path):
        versions = versions_in(path)
        if not versions:
            raise InputError(
                f"Expected an export: <version>/{SAVED_MODEL} or <version>/{CTRANSLATE2_MODEL}, "
                f"or one version's directory. Received: directory={directory}, without one. "
                + remedy_for(path, "Write one with `keras-transformer export RUN DIR`.")
            )
        path = versions[max(versions)]
    return (
        ExportedTranslator(path) if (path / SAVED_MODEL).exists() else CTranslate2Translator(path)
    )
