"""Files of any file system that Beam knows, such as `gs://`, `s3://`, `hdfs://` or a local one."""

import contextlib
import json
import os
import pathlib
import uuid

from apache_beam.io.filesystems import FileSystems

from keras_transformer.errors import InputError
from keras_transformer.files.text import BROKEN, decompressing


def absolute(path):
    """Returns a local path as workers need it, who run elsewhere; an address stays."""
    return path if "://" in path else os.path.abspath(path)


def join(directory, *names):
    return FileSystems.join(directory, *names)


def make_directories(*paths):
    for path in paths:
        if not FileSystems.exists(path):
            FileSystems.mkdirs(path)


def base_name(path):
    return FileSystems.split(path)[1]


def matching(patterns):
    """Returns the sorted paths of the files that patterns such as `gs://bucket/in-*.txt` match.

    Raises:
        ValueError: a pattern matches no file.
    """
    found = set()
    for result in FileSystems.match(list(map(absolute, patterns))):
        if not result.metadata_list:
            raise InputError(
                f"Expected files to read. Received: {result.pattern}, which matches no file. "
                "Check the name, and put quotation marks around a pattern."
            )
        found.update(metadata.path for metadata in result.metadata_list)
    return sorted(found)


def read_lines(path):
    """Yields the lines of a file as bytes, without their line feeds.

    Raises:
        ValueError: the file is not compressed as its name says, or not whole.
    """
    try:
        with FileSystems.open(path, compression_type="uncompressed") as source:
            for line in decompressing(path, source):
                yield line.removesuffix(b"\n")
    except BROKEN as error:
        raise InputError(
            f"Expected a whole file, compressed as its name says. Received: {path}: {error}"
        ) from None


@contextlib.contextmanager
def whole_file(path, directory):
    """Yields a binary stream for a file that is there when all is written, and not before.

    Args:
        path: of the file; compressed as its name says.
        directory: for the unfinished file, in the same file system.
    """
    partial = join(directory, f"{uuid.uuid4().hex}{pathlib.PurePath(path).suffix}")
    try:
        with FileSystems.create(partial) as stream:
            yield stream
        FileSystems.rename([partial], [path])
    except BaseException:
        with contextlib.suppress(Exception):
            FileSystems.delete([partial])
        raise


def read_json(path):
    """Returns the content of a JSON file, or None where there is none."""
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path) as stream:
        return json.loads(stream.read())


def write_json(path, content, directory):
    """Writes a JSON file; the arguments are as for `whole_file`."""
    with whole_file(path, directory) as stream:
        stream.write(json.dumps(content, ensure_ascii=False).encode())
