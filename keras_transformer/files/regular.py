"""Files of a directory that somebody else may have made.

A name in such a directory can be a pipe, which keeps its reader waiting, a device without an end,
or a link to a file of the reader's own; and a file can be larger than memory.
"""

import errno
import math
import os
import pathlib
import stat
import zipfile

from keras_transformer.errors import InputError

SETTINGS_BYTES = 2**22
"""Largest file of settings that is read, of any format."""
VOCABULARY_BYTES = 2**25
"""Largest file of a tokenizer that is read."""


def is_named(directory, name):
    """Returns whether a directory has this name, even as that of a link that leads nowhere."""
    path = os.path.join(directory, name)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _refusal("a directory that can be read", path, error) from None
    return True


def regular_file(directory, name, most_bytes=None):
    """Returns the path of a regular file of a directory, which can be opened without danger.

    A link may lead to another file of the directory or, in the cache of `huggingface_hub`, to the
    blob that it names.

    Args:
        directory: path.
        name: str, relative to it.
        most_bytes: the largest size that is accepted; None: that of the machine's memory.
    Raises:
        OSError: it is missing, no regular file, outside of the directory, or too large.
    """
    path = pathlib.Path(directory, name)
    most_bytes = most_bytes or memory_bytes()
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if path.is_symlink():
            reason = f"a link to {os.readlink(path)}, which is missing"
            raise FileNotFoundError(errno.ENOENT, reason, str(path)) from None
        raise
    except ValueError:  # a null character
        raise OSError(errno.EINVAL, "not a name of a file", str(path)) from None
    if not _is_within(directory, path):
        reason = "a file outside of the directory"
    elif not stat.S_ISREG(status.st_mode):
        reason = "not a regular file"
    elif status.st_size > most_bytes:
        reason = f"{status.st_size:,} bytes, more than the {most_bytes:,} that can be read"
    else:
        return path
    raise OSError(errno.EINVAL, reason, str(path))


def check_arrays(path):
    """Raises `ValueError` if arrays in an .npz file need more memory than it or the machine has."""
    from numpy.lib import format as npy  # here, as nothing else in this folder needs it

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if unpacked_bytes(path) > memory_bytes():
        raise ValueError("it is larger than the memory")
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = npy.read_magic(file)
                if version not in readers:
                    numbers = ".".join(map(str, version))
                    raise ValueError(
                        f"{member.filename} is in NumPy's format {numbers}, not 1 or 2"
                    )
                shape, _, dtype = readers[version](file)
                if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
                    raise ValueError(f"{member.filename} has another size than its shape {shape}")


def unpacked_bytes(path):
    """Returns the size of all files in a zip archive."""
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())


def memory_bytes():
    """Returns the size of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def read_regular(directory, name, expected, most_bytes=SETTINGS_BYTES):
    """Returns the bytes of a regular file; `InputError` instead of the errors of `regular_file`.

    Args:
        expected: str, what the file is, for the message.
    """
    try:
        return regular_file(directory, name, most_bytes).read_bytes()
    except OSError as error:
        raise _refusal(expected, pathlib.Path(directory, name), error) from None


def check_regular_files(directory):
    """Raises `OSError`, as `regular_file` does, unless it accepts all files of a directory."""
    directory = pathlib.Path(directory)
    for path in directory.rglob("*"):
        if not (path.is_dir() and _is_within(directory, path)):
            regular_file(directory, path.relative_to(directory))


def _is_within(directory, path):
    root = pathlib.Path(directory).resolve()
    snapshots = next((each for each in (root, *root.parents) if each.name == "snapshots"), None)
    blobs = [snapshots.parent / "blobs"] if snapshots else []
    return any(path.resolve().is_relative_to(each) for each in (root, *blobs))


def _refusal(expected, path, error):
    return InputError(f"Expected {expected}. Received: {path}: {error.strerror}.")
