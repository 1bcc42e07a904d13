"""The versions of an export: a new one is written whole, or not at all."""

import dataclasses
import json
import os
import pathlib

import keras

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.export.model_card import write_model_card
from keras_transformer.files.atomic import partial_directory, put_in_place
from keras_transformer.files.checksums import write_checksums
from keras_transformer.files.version_numbers import (
    EXPORT_SETTINGS,
    HIGHEST_VERSION,
    PACKAGE_VERSION,
    version_number,
)


def write_version(write, directory, version, model, decoding, about=None, **others):
    """Calls `write` with a hidden directory, adds settings, card and checksums, and its number.

    The settings are in a file that TensorFlow Serving ignores. If anything fails, nothing is left
    behind.

    Args:
        write: function of a `pathlib.Path`, which writes the files and returns a `Verification`.
        directory: path of all versions.
        version: int, or None for one more than the highest.
        model, decoding: what is exported.
        about: what the model card says of its training, see `facts_of_runs`.
        others: further settings of this format.
    Returns:
        `pathlib.Path` of the new version.
    """
    directory = pathlib.Path(directory)
    with partial_directory(directory) as partial:
        verification = write(partial)
        settings = {
            "keras_transformer": PACKAGE_VERSION,
            "decoding": dataclasses.asdict(decoding),
            **others,
            "model": keras.saving.serialize_keras_object(model)["config"],
            "verification": verification._asdict(),
        }
        (partial / EXPORT_SETTINGS).parent.mkdir(exist_ok=True)
        (partial / EXPORT_SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")
        write_model_card(partial, settings, model, about)
        write_checksums(partial)
        return _publish(partial, directory, version)


def check_backend():
    """Raises `ValueError` unless Keras runs on TensorFlow, as a SavedModel needs."""
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            f"A SavedModel needs Keras on TensorFlow. Received: backend={keras.backend.backend()}. "
            "Set KERAS_BACKEND=tensorflow, which loads the same weights."
        )


def check_can_export(directory, version):
    """Raises `ValueError` where no new version can be written; see `export_saved_model`."""
    directory = pathlib.Path(directory)
    present = next(path for path in (directory, *directory.parents) if path.exists())
    if not present.is_dir():
        raise InputError(
            f"Expected a directory to export to. Received: directory={directory}, where {present} "
            "is a file. Name another."
        )
    if (directory / "config.yaml").exists():
        raise InputError(
            f"Expected a directory for exports. Received: directory={directory}, a run. With an "
            "export in it, the run could not be loaded any more. Name another directory."
        )
    check_positive_integers(("version",), version=version)
    if version is not None and version > HIGHEST_VERSION:
        raise InputError(
            f"Expected a version from 1 to {HIGHEST_VERSION}, the highest that TensorFlow Serving "
            f"reads. Received: version={version}. Leave it out to get the next free one."
        )
    if version is not None and (directory / str(version)).exists():
        raise InputError(
            f"Expected a version that does not exist. Received: version={version}, and there is "
            f"{directory / str(version)}. Leave it out to get the next free one."
        )


def _publish(partial, directory, version):
    """Gives the export its version number; simultaneous exports each get their own."""
    while True:
        path = directory / str(version or _next_version(directory))
        try:
            put_in_place(partial, path)
            return path
        except FileExistsError:
            check_can_export(directory, version)


def _next_version(directory):
    """Returns one more than the highest version, which is the one that a server serves."""
    numbers = map(version_number, os.listdir(directory))
    version = 1 + max((number for number in numbers if number is not None), default=0)
    if version > HIGHEST_VERSION:
        raise InputError(
            f"Expected a directory with a free version. Received: {directory}, which has the "
            f"highest one, {HIGHEST_VERSION}. Name a lower version, or another directory."
        )
    return version
