"""The version of this package, and those of an export: directories with numbers, as TensorFlow
Serving reads them.
"""

import contextlib
import errno
import json
import os
import pathlib

from keras_transformer.files.regular import read_regular

PACKAGE_VERSION = "0.1.0"
"""The version of this package, which `keras_transformer.__version__` names."""

HIGHEST_VERSION = 2**63 - 1
"""The highest number that fits into the messages of TensorFlow Serving."""

SAVED_MODEL, CTRANSLATE2_MODEL = "saved_model.pb", "model.bin"
"""The files by which a version is known: of a SavedModel, or of CTranslate2."""


NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)

EXPORT_SETTINGS = "assets.extra/keras_transformer.json"
"""The file of an export with its settings, which TensorFlow Serving ignores."""


def version_number(text):
    """Returns the version number that a text stands for, or None where it is no such number."""
    digits = text.lstrip("0") or "0"
    is_number = text.isascii() and text.isdecimal() and len(digits) <= len(str(HIGHEST_VERSION))
    return int(digits) if is_number and int(digits) <= HIGHEST_VERSION else None


def is_version(path, if_refused=True):
    """Returns whether a directory is one version of an export, by its files.

    Args:
        path: the directory.
        if_refused: the answer for a directory that this process may not enter. It counts as a
            version, so that loading it says why it fails.
    """
    return any(_exists(path, name, if_refused) for name in (SAVED_MODEL, CTRANSLATE2_MODEL))


def versions_in(directory):
    """Returns the versions in a directory, a dict from number to path; of 1 and 001, 1 wins.

    Raises:
        OSError: the directory, or what is in it, cannot be read now.
    """
    paths = sorted(_paths_in(directory), key=lambda path: -len(path.name))
    numbers = {path: version_number(path.name) for path in paths}
    return {n: path for path, n in numbers.items() if n is not None and is_version(path)}


def remedy_for(directory, otherwise):
    """Returns what to do with a directory that is neither a run nor an export that can be loaded.

    Args:
        directory: path.
        otherwise: str, the remedy if it has none of the models that this package knows.
    """
    directory = pathlib.Path(directory)
    numbers = {path: version_number(path.name) for path in _paths_in(directory)}
    versions = sorted((path for path, n in numbers.items() if n is not None), key=numbers.get)
    for path in (directory, *reversed(versions)):
        if _is_marian(path):
            return (
                f"It has a model of OPUS-MT in {path}. Make a run of it: keras-transformer import "
                f"{path} --output RUN"
            )
        if _exists(path, EXPORT_SETTINGS) and not is_version(path):
            return f"The export in {path} has lost its model. Export it again, or copy it again."
    return otherwise


def _is_marian(path):
    """Returns whether a directory has a translator's files of Hugging Face or of Marian."""
    try:
        config = json.loads(read_regular(path, "config.json", "settings"))
        return isinstance(config, dict) and config.get("model_type") == "marian"
    except (OSError, ValueError, RecursionError):
        return _exists(path, "decoder.yml")


def _paths_in(directory):
    """Returns the list of the paths in a directory; an empty one where there is no directory."""
    with _absence_ignored():
        return [pathlib.Path(directory, name) for name in os.listdir(directory)]
    return []


def _exists(path, name, if_refused=False):
    """Returns whether a directory has a file; `if_refused` if this process may not look."""
    try:
        with _absence_ignored():
            os.stat(os.path.join(path, name))
            return True
    except PermissionError:
        return if_refused
    return False


@contextlib.contextmanager
def _absence_ignored():
    """Ignores the errors of a path that leads to nothing, but not of a disk that fails."""
    try:
        yield
    except OSError as error:
        if error.errno not in NOTHING_THERE:
            raise
    except ValueError:  # a path with a null character
        pass
