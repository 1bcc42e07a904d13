"""Files and directories that are there whole or not at all, even after `kill -9` or a full disk."""

import contextlib
import errno
import os
import pathlib
import shutil
import uuid

PARTIAL = ".partial-"
"""How the name of a directory that is still being written begins."""


@contextlib.contextmanager
def replacing(path):
    """Yields a hidden path beside `path`, with the same suffixes, for a file that replaces `path`.

    If anything fails, what stood at `path` stays. The bytes are on the disk before the file gets
    its name, so that a machine that loses power keeps one of the two files. A link stays a link. A
    pipe or a device cannot be replaced and is yielded itself.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():
        yield path  # not resolved: /dev/stdout may lead to a pipe, which has no name
        return
    path = path.resolve()
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield partial
        flush_to_disk(partial)
        os.replace(partial, path)
        flush_to_disk(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def is_being_written(partial):
    """Returns whether another process lives that writes a file of `replacing`."""
    number = partial.name[1:].partition(".")[0]
    if number == str(os.getpid()):  # of a killed process that had this number, as in a container
        return False
    try:
        os.kill(int(number), 0)  # no signal: it only looks
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:  # of another user
        return True
    return True


@contextlib.contextmanager
def partial_directory(parent):
    """Yields a new hidden directory in `parent`, to be filled and passed to `put_in_place`.

    If it is still there at the end, because something failed, it is deleted, and so is `parent`
    where it was made for it. What killed processes left is deleted too: a process that is still
    writing holds a lock on its directory. A file system without locks, such as NFS, keeps it.
    """
    parent = pathlib.Path(parent)
    is_new = not parent.exists()
    parent.mkdir(parents=True, exist_ok=True)
    partial = parent / f"{PARTIAL}{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as briefly:
            _lock(parent, briefly, wait=True)  # until ours is locked, nobody may look for leftovers
            for leftover in parent.glob(f"{PARTIAL}*"):
                if _lock(leftover, briefly):
                    shutil.rmtree(leftover, ignore_errors=True)
            partial.mkdir()
            _lock(partial, stack)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # not empty: what was written stands in it
                    parent.rmdir()


def put_in_place(partial, path, aside=None):
    """Gives a directory of `partial_directory` its name, when its bytes are on the disk.

    Args:
        partial: the directory.
        path: its new path, in the same parent directory.
        aside: path to which a directory that stands at `path` is moved until the new one is there;
            None: an existing `path` is refused.
    Raises:
        FileExistsError: there is something at `path`.
    """
    for written in (*partial.rglob("*"), partial):
        flush_to_disk(written)
    if aside is not None and path.exists():
        os.rename(path, aside)
    try:
        if path.exists():  # a rename would replace an empty directory
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        os.rename(partial, path)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # another process has taken the name meanwhile
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        raise
    flush_to_disk(path.parent)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


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


def _lock(directory, stack, wait=False):
    """Locks a directory until `stack` is closed; returns whether that was possible."""
    import fcntl  # which Windows lacks; nothing else here needs it

    try:
        descriptor = os.open(directory, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or the file system has no such locks
        return False
    return True
