"""Files and directories that are there whole or not at all, even after `kill -9` or a full disk."""

import contextlib
import errno
import os
import pathlib
import resource
import shutil
import stat
import uuid

PARTIAL = ".partial-"
"""How the name of a directory that is still being written begins."""


@contextlib.contextmanager
def replacing(path):
    """Yields a path beside `path`, with the same suffix, for a file that replaces `path`.

    If anything fails, what stood at `path` stays. The bytes are on the disk before the file gets
    its name, so that a machine that loses power keeps one of the two files. The new file has the
    mode and the owner of the old one. A link stays a link. A pipe or a device cannot be replaced
    and is yielded itself.

    Args:
        path: path of the file.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():
        yield path  # not resolved: /dev/stdout may lead to a pipe, which has no name
        return
    path = path.resolve()
    with naming(path):
        partial = path.with_name(f".{os.getpid()}.{path.name}")
        partial.unlink(missing_ok=True)  # of a killed process that had this number
        if path.exists():
            partial.touch(0o600)  # the old file may be private
        try:
            yield partial
            flush_to_disk(partial)
            if path.exists():
                copy_owner_and_mode(path, partial)
            os.replace(partial, path)
            flush_to_disk(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def copy_owner_and_mode(path, partial):
    """Gives a file that is to replace another the owner and the mode of that one."""
    status = path.stat()
    with contextlib.suppress(PermissionError):  # only root may give a file to another user
        os.chown(partial, status.st_uid, status.st_gid)
    partial.chmod(stat.S_IMODE(status.st_mode))


@contextlib.contextmanager
def naming(path):
    """Adds `path` to an `OSError` that names no file, as those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


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
    with contextlib.ExitStack() as stack, naming(parent):
        with contextlib.ExitStack() as briefly:
            lock(parent, briefly, wait=True)  # until ours is locked, nobody may look for leftovers
            for leftover in parent.glob(f"{PARTIAL}*"):
                if lock(leftover, briefly):
                    shutil.rmtree(leftover, ignore_errors=True)
            partial.mkdir()
            lock(partial, stack)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # not empty: what was written stands in it
                    parent.rmdir()


@contextlib.contextmanager
def new_directory(path, last):
    """Yields a hidden directory to be filled, whose content is then at `path`, all of it or none.

    An empty directory at `path` stays the same one, because it may be a mount point, or a shell may
    stand in it: the content moves into it.

    Args:
        path: path of a directory, new or empty.
        last: name of the entry by which readers know that all is there; it moves last.
    Raises:
        FileExistsError: there is something at `path`, perhaps of another process.
    """
    path = pathlib.Path(path).resolve()
    is_there = path.exists()
    with partial_directory(path if is_there else path.parent) as partial:
        yield partial
        if not is_there:
            put_in_place(partial, path)
            return
        _flush_all(partial)
        with contextlib.ExitStack() as briefly:
            lock(path, briefly, wait=True)
            if holds_files(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            names = sorted(os.listdir(partial), key=lambda name: name == last)
            try:
                for name in names:
                    os.rename(partial / name, path / name)
            except BaseException:  # a signal, for example
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(path / name, partial / name)
                raise
        flush_to_disk(path)


def holds_files(path):
    """Returns whether there is more at `path` than an empty directory or unfinished ones."""
    path = pathlib.Path(path)
    return path.exists() and any(not name.startswith(PARTIAL) for name in os.listdir(path))


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
    _flush_all(partial)
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
    """Raises `OSError` where the disk, or the limit of a file's size (`ulimit -f`), lacks room.

    HDF5 finds out too late, and ends the process.
    """
    code, free = errno.ENOSPC, shutil.disk_usage(directory).free
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < free:
        code, free = errno.EFBIG, limit
    if free < num_bytes:
        needed = f"{os.strerror(code)}: {num_bytes:,} bytes needed, {free:,} free"
        raise OSError(code, needed, str(directory))


def _flush_all(directory):
    for written in (*directory.rglob("*"), directory):
        flush_to_disk(written)


def flush_to_disk(path):
    """Waits until a file's bytes, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(path, stack, wait=False):
    """Locks a file or a directory until `stack` is closed; returns whether that was possible."""
    import fcntl  # which Windows lacks; nothing else here needs it

    try:
        descriptor = os.open(path, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or the file system has no such locks
        return False
    return True
