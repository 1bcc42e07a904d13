"""The settings of an export, in a file that TensorFlow Serving ignores."""

import dataclasses
import json

import keras

import keras_transformer
from keras_transformer.files.version_numbers import EXPORT_SETTINGS


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
    }
    (path / EXPORT_SETTINGS).parent.mkdir(exist_ok=True)
    (path / EXPORT_SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
