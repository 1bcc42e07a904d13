"""Checksums of files, so that a damaged file is refused instead of read with wrong content.

They stand in a file `SHA256SUMS` of each directory, in the format of `sha256sum`, so that
`sha256sum --check SHA256SUMS` in that directory checks them without this package.
"""

import hashlib
import pathlib
import re

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.files.regular import (
    VOCABULARY_BYTES,
    check_regular_files,
    is_named,
    regular_file,
)
from keras_transformer.files.version_numbers import EXPORT_SETTINGS

CHECKSUMS = "SHA256SUMS"
CHUNK_BYTES = 1 << 20
LINE = re.compile(r"([0-9A-Fa-f]{64}) [ *](.+?)\r?")
"""The digest and the name; the asterisk is of binary mode, and the \\r of a copy by Windows."""


def checksum(path):
    """Returns the SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def write_checksums(directory):
    """Writes the checksums of all files in a directory, subdirectories included."""
    directory = pathlib.Path(directory)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    lines = [
        f"{checksum(path)}  {path.relative_to(directory).as_posix()}\n"
        for path in files
        if path.name != CHECKSUMS
    ]
    (directory / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def remove_with_checksum(directory, name):
    """Deletes a file of a directory, if it is there, and its checksum."""
    sums = directory / CHECKSUMS
    if sums.exists():
        lines = sums.read_bytes().decode(errors="replace").split("\n")
        kept = [
            line for line in lines if not ((found := LINE.fullmatch(line)) and found[2] == name)
        ]
        if kept != lines:
            with replacing(sums) as partial:
                partial.write_bytes("\n".join(kept).encode())
    (directory / name).unlink(missing_ok=True)


def check_checksums(directory, names=None):
    """Raises `ValueError` where a file of a directory is missing or differs from its checksum.

    Args:
        directory: path.
        names: names of the files to check, relative to the directory; None: all listed files.
    """
    if not is_named(directory, CHECKSUMS):
        raise InputError(f"{CHECKSUMS} is missing")
    try:
        listed = regular_file(directory, CHECKSUMS, VOCABULARY_BYTES).read_bytes()
    except OSError as error:
        raise InputError(f"{CHECKSUMS}: {error.strerror}") from None
    expected = {}
    for line in filter(str.strip, listed.decode(errors="replace").split("\n")):
        if not (found := LINE.fullmatch(line)):
            raise InputError(f"{CHECKSUMS} has a line that is no checksum: {line!r:.80}")
        expected[found[2]] = found[1].lower()
    if not expected:
        raise InputError(f"{CHECKSUMS} is empty")
    for name in sorted(expected) if names is None else names:
        try:
            if checksum(regular_file(directory, name)) == expected.get(name):
                continue
        except OSError as error:
            raise InputError(f"{name}: {error.strerror}") from None
        raise InputError(f"{name} is not what its checksum in {CHECKSUMS} says")


def check_export(path):
    """Raises `ValueError` where a file of an export is missing or differs from its checksum.

    SavedModels that are no exports of this package need no checksums, but regular files.
    """
    try:
        check_regular_files(path)
    except PermissionError:  # a server says it in other words than that a file is damaged
        raise
    except OSError as error:
        raise InputError(f"{pathlib.Path(error.filename).name}: {error.strerror}") from None
    if any(is_named(path, name) for name in (EXPORT_SETTINGS, CHECKSUMS)):
        check_checksums(path)


def check_if_listed(directory):
    """Raises `ValueError` where checksums lie beside files of which one is another or missing."""
    if not is_named(directory, CHECKSUMS):
        return
    try:
        check_checksums(directory)
    except ValueError as error:
        raise InputError(
            f"Expected the files that {CHECKSUMS} lists. Received: {directory}, where {error}. "
            f"Copy them again; or remove {CHECKSUMS}, if you have changed them."
        ) from None
