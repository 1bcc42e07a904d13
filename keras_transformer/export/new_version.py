"""A new version of an export: written whole, or not at all."""

import os
import pathlib

import keras
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.export.settings import write_settings
from keras_transformer.export.verification import verify_function
from keras_transformer.export.warmup import write_warmup_requests
from keras_transformer.files.atomic import partial_directory, put_in_place
from keras_transformer.files.checksums import write_checksums
from keras_transformer.files.version_numbers import HIGHEST_VERSION, version_number


def write_version(write, directory, version):
    """Calls `write` with a hidden directory, adds checksums, and gives it its version number.

    If anything fails, nothing is left behind.

    Args:
        write: function of a `pathlib.Path`, which writes and verifies the SavedModel.
        directory: path of all versions.
        version: int, or None for one more than the highest.
    Returns:
        `pathlib.Path` of the new version.
    """
    directory = pathlib.Path(directory)
    with partial_directory(directory) as partial:
        write(partial)
        write_checksums(partial)
        return _publish(partial, directory, version)


def check_can_export(directory, version):
    """Raises `ValueError` where no new version can be written; see `export_saved_model`."""
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            f"An export needs Keras on TensorFlow. Received: backend={keras.backend.backend()}. "
            "Set KERAS_BACKEND=tensorflow, which loads the same weights."
        )
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


def check_decoding(decoding):
    """Raises `ValueError` unless the settings of a search are a `DecodingConfig`."""
    if not isinstance(decoding, DecodingConfig):
        raise InputError(
            f"Expected a DecodingConfig for the search. Received: decoding={decoding!r}."
        )


def in_float32(model):
    """Returns the model, built, or one with the same weights that computes in float32.

    With half the bits, an answer depends on its neighbours in the batch, and a CPU is slow.
    """
    if not model.built:
        model.build()
    config = model.get_config()
    float32_config = _with_float32(config)
    if float32_config == config:
        return model
    copy = type(model).from_config(float32_config)
    copy.build()
    copy.set_weights(model.get_weights())
    return copy


def _with_float32(config):
    """Returns a serialized model with the dtype of float32, and so the layers within it."""
    if isinstance(config, (list, tuple)):
        return type(config)(map(_with_float32, config))
    if not isinstance(config, dict):
        return config
    return {
        name: _float32_policy(value) if name == "dtype" else _with_float32(value)
        for name, value in config.items()
    }


def _float32_policy(policy):
    return policy if keras.dtype_policies.get(policy).name == "float32" else "float32"


def tracked_weights(model):
    """Returns a `tf.Module` to save, with the `weights` of a model and its `decoding_weights`.

    The plain `tf.Variable` of each weight is tracked, not the Keras model: Keras would export a
    copy of each variable, while the functions read the original, which a server then cannot find.
    """
    tracked = tf.Module()
    tracked.weights = [weight.value for weight in model.weights]
    # some a second time, in the layout that decoding reads, so that no call has to compute it
    tracked.decoding_weights = tf.nest.map_structure(
        lambda weight: tf.Variable(weight, trainable=False), model.decoding_weights()
    )
    return tracked


def export_search(model, make_function, rows, directory, version, decoding):
    """Exports a search as the only signature, `serving_default`, and verifies it.

    Args:
        model: built model with `decoding_weights`, which computes in float32.
        make_function: function of the decoding weights, as variables; returns the `tf.function` of
            one array, and a list of what it needs beside the weights.
        rows: NumPy array with which it is verified and warmed up.
        directory, version: see `write_version`.
        decoding: `DecodingConfig`, for the settings.
    Returns:
        `pathlib.Path` of the new version.
    """

    def write(path):
        tracked = tracked_weights(model)
        function, tracked.others = make_function(tracked.decoding_weights)
        tf.saved_model.save(tracked, str(path), signatures=function)
        (spec,) = function.input_signature
        requests = [("serving_default", {spec.name: batch}) for batch in (rows[:1], rows)]
        write_warmup_requests(path, requests)
        verification = verify_function(path, function, rows)
        write_settings(path, model, decoding, verification)

    return write_version(write, directory, version)


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
