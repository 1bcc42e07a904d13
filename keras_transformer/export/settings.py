"""The settings of an export, in a file that TensorFlow Serving ignores."""

import dataclasses
import json
import pathlib

import keras

import keras_transformer
from keras_transformer.checksums import check_checksums
from keras_transformer.version_numbers import EXPORT_SETTINGS


def check_export(path):
    """Raises `ValueError` where a file of a SavedModel is missing or differs from its checksum.

    Exports by earlier versions of this package and other SavedModels have no checksums.
    """
    try:
        settings = json.loads(pathlib.Path(path, EXPORT_SETTINGS).read_text())
        is_required = settings.get("checksums", False)
    except (OSError, ValueError, AttributeError):
        is_required = False
    check_checksums(path, is_required=is_required)


def write_settings(path, model, decoding, verification, **others):
    """Writes the settings of an export into the directory of its version.

    Args:
        path: `pathlib.Path` of the directory.
        model, decoding: what is exported.
        verification: `Verification`.
        others: further settings of this kind of export.
    """
    settings = {
        "keras_transformer": keras_transformer.__version__,
        "decoding": dataclasses.asdict(decoding),
        **others,
        "model": keras.saving.serialize_keras_object(model)["config"],
        "verification": verification._asdict(),
        "checksums": True,
    }
    (path / EXPORT_SETTINGS).parent.mkdir(exist_ok=True)
    (path / EXPORT_SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
