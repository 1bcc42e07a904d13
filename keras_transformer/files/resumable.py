"""A file of lines that is written for hours, and that goes on where a killed process ended."""

import contextlib
import errno
import gzip
import hashlib
import json
import os
import pathlib
import sys
import time

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import copy_owner_and_mode, flush_to_disk, naming

SECONDS_BETWEEN_SAVES = 1.0
"""Lines of so many seconds, or of a batch that takes longer, are computed again after a kill."""


@contextlib.contextmanager
def resumable_lines(path, work="", restart=False):
    """Yields a `ResumableLines` for a file, or for standard output.

    The lines go to a file beside `path`, named `F.partial.SUFFIX`, and what is done to another with
    `.json` behind it. When all is written the file gets its name, and an old one is replaced. If
    anything fails, both stay, and a note of the error says where (PEP 678): the next call with the
    same `work` goes on. A pipe or a device is written itself, and nothing of it can go on.

    Args:
        path: path of the file; None: standard output.
        work: str, everything but the input that decides what is written.
        restart: whether what is there already is thrown away.
    Raises:
        ValueError: what is there is of other work, or another process is writing.
    """
    if path is None or (pathlib.Path(path).exists() and not pathlib.Path(path).is_file()):
        with contextlib.nullcontext(sys.stdout.buffer) if path is None else open(path, "wb") as raw:
            lines = ResumableLines(raw, pathlib.Path(path or ""), flush_each=True)
            yield lines
            lines.flush()
        return
    path = pathlib.Path(path).resolve()  # a link stays a link
    partial = path.with_stem(f"{path.stem}.partial")
    state = partial.with_name(f"{partial.name}.json")
    with contextlib.ExitStack() as stack, naming(path):
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o600 if path.exists() else 0o666)
        raw = open(descriptor, "r+b")
        stack.callback(_close, raw)
        _lock(raw, path)
        if restart:
            state.unlink(missing_ok=True)
        done = _done(raw, state, work)
        raw.seek(done.get("bytes", 0))
        raw.truncate()
        lines = ResumableLines(raw, path, {"work": work, **done}, state)
        try:
            yield lines
            lines.check_all_read()
            lines.flush()
            os.fsync(descriptor)
            if path.exists():
                copy_owner_and_mode(path, partial)
            os.replace(partial, path)
            for written in (state, state.with_suffix(".new")):
                written.unlink(missing_ok=True)
            flush_to_disk(path.parent)
        except BaseException as error:
            if lines.is_other:
                raise
            with contextlib.suppress(OSError):  # perhaps the disk is full
                lines.save()
            if lines.num_saved:
                error.__notes__ = [
                    f"what is done up to line {lines.num_saved:,} is in {partial}: the same "
                    "command goes on"
                ]
            else:
                for written in (partial, state, state.with_suffix(".new")):
                    written.unlink(missing_ok=True)
            raise


class ResumableLines:
    """The lines of an output, and how many lines of the input they answer.

    Attributes:
        num_saved: number of lines of the input whose answers a kill does not take.
        notes: dict of what a later process shall know too, saved as JSON.
        is_other: bool, whether the input is not the one that the lines answer.
    """

    def __init__(self, raw, path, done=None, state=None, flush_each=False):
        self._raw, self._path, self._state = raw, path, state
        self._is_gzip = path.suffix == ".gz"
        self._flush_each = flush_each
        self._done = {"lines": 0, "digest": "", "notes": {}, **(done or {})}
        self._num_to_skip = self._done["lines"]
        self._digest, self._saved_at = hashlib.sha256(), time.monotonic()
        self.num_saved = self._done["lines"]
        self.notes, self.is_other = self._done["notes"], False
        self._begun = []  # the lines of an answer that is not whole
        self._member = None

    @property
    def num_done(self):
        """Number of lines of the input that are answered."""
        return self._done["lines"]

    def rest(self, lines):
        """Yields those lines of the input that are not answered yet.

        Args:
            lines: iterable of str. Several calls read one input after the other.
        Raises:
            ValueError: the first lines are not those that were answered.
        """
        for line in lines:
            if not self._num_to_skip:
                yield line
                continue
            self._num_to_skip -= 1
            self._add(line)
            if not self._num_to_skip and self._digest.hexdigest() != self._done["digest"]:
                self._refuse("another input")

    def write(self, line):
        """Writes a line of an answer: to a file only when the answer is whole."""
        self._begun.append(line.encode("utf-8") + b"\n")
        if self._flush_each:  # a reader, perhaps a person, sees each line at once
            self.flush()

    def _write_begun(self):
        content = b"".join(self._begun)
        self._begun.clear()
        if self._is_gzip and self._member is None:
            # one for each time that it is saved: a file can be cut between two
            self._member = gzip.GzipFile(fileobj=self._raw, mode="wb")
        (self._member or self._raw).write(content)

    def end_answer(self, line):
        """Says that a line of the input has been answered by what was written."""
        self._write_begun()
        self._add(line)
        self._done["lines"] += 1
        if time.monotonic() - self._saved_at > SECONDS_BETWEEN_SAVES:
            self.save()

    def saved(self, chunks):
        """Yields chunks of answers, and saves each before it waits for the next."""
        for chunk in chunks:
            yield chunk
            self.save()

    def save(self):
        """Makes sure that what is done stays done."""
        if self._state is None or self._num_to_skip:
            return
        self._begun.clear()
        self.flush()
        os.fsync(self._raw.fileno())
        self._done |= {"bytes": self._raw.tell(), "digest": self._digest.hexdigest()}
        new = self._state.with_suffix(".new")  # always the same: a kill leaves no more than one
        new.write_text(json.dumps(self._done))
        os.replace(new, self._state)
        self.num_saved = self.num_done
        self._saved_at = time.monotonic()

    def flush(self):
        """Writes what is not written yet."""
        self._write_begun()
        if self._member is not None:
            self._member.close()
            self._member = None
        self._raw.flush()

    def check_all_read(self):
        """Raises `ValueError` if the input has ended before the lines that were answered."""
        if self._num_to_skip:
            self._refuse("an input that is shorter")

    def _add(self, line):
        self._digest.update(line.encode("utf-8", "surrogatepass") + b"\n")

    def _refuse(self, received):
        self.is_other = True
        raise _other_work(self._state, received)


def _other_work(state, received):
    """Returns the `InputError` for what has been begun by another command."""
    return InputError(
        f"Expected the command that has begun {state.with_suffix('')}. Received: {received}. Give "
        "--restart to begin anew, or name another output."
    )


def _done(raw, state, work):
    """Returns what a state file says is done; {} where there is none."""
    size = os.fstat(raw.fileno()).st_size
    try:
        done = json.loads(state.read_bytes())
        is_whole = 0 <= done["bytes"] <= size and type(done["lines"]) is int and done["lines"] >= 0
        is_whole &= isinstance(done["notes"], dict) and isinstance(done["digest"], str)
    except FileNotFoundError:
        return {}  # it was killed before the first lines were done
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise _other_work(state, f"{state}, which is damaged")
    if done["work"] != work:
        raise _other_work(state, "another model, search, or file of terms or prefixes")
    return done


def _close(raw):
    with contextlib.suppress(OSError):  # the disk is full, which was said
        raw.close()


def _lock(raw, path):
    """Refuses a file that another process is writing."""
    import fcntl  # which Windows lacks; nothing else here needs it

    try:
        fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise InputError(
                f"Expected an output that no other process is writing. Received: {path}. Wait for "
                "it, or name another output."
            ) from None  # other errors: the file system has no locks
