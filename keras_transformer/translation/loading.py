"""Loads a translator from a run directory or an export."""

import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformer.config import DecodingConfig
from keras_transformer.config.settings import check_known, settings
from keras_transformer.errors import InputError
from keras_transformer.files.version_numbers import (
    CTRANSLATE2_MODEL,
    SAVED_MODEL,
    is_version,
    remedy_for,
    versions_in,
)
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from keras_transformer.translation.exported_translator import ExportedTranslator


def load(
    path: StrPath, checkpoint: str | None = None, **decoding: Any
) -> "Translator | ExportedTranslator":
    """Returns the translator of a run directory or of an export.

    Args:
        path: run directory, or export directory with or without a version.
        checkpoint: for a run, "best", "last" or "averaged"; None: the best or the averaged weights,
            as the training chose by validation.
        decoding: fields of `DecodingConfig` that replace the run's own. The search of an export is
            fixed: another value is refused.
    Returns:
        `Translator`, or the `ExportedTranslator` or `CTranslate2Translator` of an export.
    Raises:
        ValueError: the path is neither a run nor an export, or the arguments choose the checkpoint
            or change the search of an export.

    Example:
        load("runs/python", beam_size=1)("A dog runs.")
    """
    for name in decoding:
        check_known(name, settings(DecodingConfig), "a setting of the search")
    path = pathlib.Path(path)
    if not (is_version(path) or versions_in(path)):
        return Translator.from_run(path, checkpoint, **decoding)
    if checkpoint is not None:
        raise InputError(
            "Expected no choice of weights with an export, which holds one set of weights. "
            f"Received: checkpoint={checkpoint!r}. Leave it out, or load the run."
        )
    translator = load_export(path)
    for name, value in decoding.items():
        exported = getattr(translator.decoding, name)
        if value != exported:
            raise InputError(
                "Expected the search that is fixed in the export. "
                f"Received: {name}={value}, exported with {name}={exported}. "
                "Leave it out, or translate with the run."
            )
    return translator


def load_export(directory: StrPath) -> "ExportedTranslator":
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
    if not (path / SAVED_MODEL).exists():
        from keras_transformer.translation.ctranslate2_translator import CTranslate2Translator

        return CTranslate2Translator(path)
    from keras_transformer.translation.exported_translator import ExportedTranslator

    return ExportedTranslator(path)
