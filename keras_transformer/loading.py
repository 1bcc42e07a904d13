"""Loads a translator from a run directory or an export."""

import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError
from keras_transformer.settings import check_known, settings
from keras_transformer.translator import Translator
from keras_transformer.types import StrPath
from keras_transformer.version_numbers import is_version, versions_in

if TYPE_CHECKING:
    from keras_transformer.export.exported_translator import ExportedTranslator


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
    from keras_transformer import export  # which needs TensorFlow

    if checkpoint is not None:
        raise InputError(
            "Expected no choice of weights with an export, which holds one set of weights. "
            f"Received: checkpoint={checkpoint!r}. Leave it out, or load the run."
        )
    translator = export.load(path)
    for name, value in decoding.items():
        exported = getattr(translator.decoding, name)
        if value != exported:
            raise InputError(
                "Expected the search that is fixed in the export. "
                f"Received: {name}={value}, exported with {name}={exported}. "
                "Leave it out, or translate with the run."
            )
    return translator
