"""Files that are there whole or not at all, whenever the process is killed or the disk is full."""

import contextlib
import errno
import os
import pathlib
import shutil


@contextlib.contextmanager
def replacing(path):
    """Yields a hidden path beside `path`, of the same suffixes; what is written there replaces it.

    If anything fails, what stood at `path` stays. The bytes are on the disk before they have the
    name, so that a machine that loses power keeps one of the two. A link stays a link; a pipe or a
    device, whose place no file may take, is yielded itself.
    """
    path = pathlib.Path(path).resolve()
    if path.exists() and not path.is_file():
        yield path
        return
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield partial
        flush_to_disk(partial)
        os.replace(partial, path)
        flush_to_disk(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def check_space(directory, num_bytes):
    """Raises `OSError` where the disk lacks room, before HDF5 finds out and ends the process."""
    free = shutil.disk_usage(directory).free
    if free < num_bytes:
        needed = f"{os.strerror(errno.ENOSPC)}: {num_bytes:,} bytes needed, {free:,} free"
        raise OSError(errno.ENOSPC, needed, str(directory))


def flush_to_disk(path):
    """Waits until a file's bytes, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
