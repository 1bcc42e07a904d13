"""Reads UTF-8 text line by line; a file named `.gz`, `.xz` or `.zst` is decompressed."""

import contextlib
import gzip
import importlib
import itertools
import lzma
import os
import pathlib
import re
import stat
import sys
import zlib
from typing import Any

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import holds_files, naming, replacing

zstd: Any = None
with contextlib.suppress(ImportError):
    zstd = importlib.import_module("backports.zstd")

BLOCK_BYTES = 2**16
"""Bytes that are read at once: what a pipe holds."""

COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}
BROKEN = (
    *(EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError),
    *([zstd.ZstdError] if zstd is not None else []),
)
"""What reading a compressed file raises that is damaged or cut short."""

BLANK = (
    r"[\x00-\x20\x7f-"
    "\xa0\xad\u034f\u061c\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""A character that shows nothing, as a regular expression of Python and of TensorFlow.

White space, control characters, the empty pattern of Braille, and what Unicode says to leave out of
a display: `Default_Ignorable_Code_Point`, such as joiners, soft hyphens and fillers
(https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt).
"""
_BLANK_TEXT = re.compile(f"{BLANK}*")


def is_blank(text):
    """Returns whether a text shows nothing: it is empty, or all its characters are `BLANK`."""
    return _BLANK_TEXT.fullmatch(text) is not None


def iterate_lines(path=None):
    """Yields the lines of a file, or of standard input, without their line ends.

    A line ends at a line feed only: other characters that Unicode calls line ends, such as
    U+2028, are part of the text.

    Raises:
        ValueError: the file is missing or unreadable, is not compressed as its name says, or is
            not UTF-8; the message names the line.
    """
    for lines in _iterate_blocks(path):
        yield from lines


def iterate_ready_lines(path=None):
    """Yields lists of the lines that `iterate_lines` yields: those that a pipe or a terminal holds.

    A list has one line at least, so it waits for that line alone.
    """
    yield from map(list, _iterate_blocks(path))


def _iterate_blocks(path):
    """Yields an iterator over the lines of each block of bytes that can be read at once."""
    name = "standard input" if path is None else path
    begun = []  # the parts of a line whose end has not come
    numbers = itertools.count(1)
    try:
        with _open(path) as stream:
            while block := stream.read1(BLOCK_BYTES):
                *ended, rest = block.split(b"\n")
                if ended:
                    ended[0] = b"".join([*begun, ended[0]])
                    begun = []
                    yield (_decode(line, name, next(numbers)) for line in ended)
                begun.append(rest)
            if last := b"".join(begun):
                yield iter([_decode(last, name, next(numbers))])
    except BROKEN as error:
        kind = COMPRESSIONS[pathlib.Path(name).suffix]
        raise InputError(
            f"Expected a whole {kind} file, as the name says. Received: {name}: {error}"
        ) from None
    except OSError as error:
        raise InputError(f"Expected a readable file. Received: {name}: {error.strerror}") from None


def count_lines(path=None):
    """Returns how many lines `iterate_lines` yields of a file; None for what cannot be read twice.

    None too for standard input, and for a file that is not whole, which reading it will say.
    """
    if path is None or not is_regular_file(path):
        return None
    number, last = 0, b"\n"
    try:
        with _open(path) as stream:
            while block := stream.read1(BLOCK_BYTES):
                number, last = number + block.count(b"\n"), block[-1:]
    except (*BROKEN, OSError):
        return None
    return number + (last != b"\n")


@contextlib.contextmanager
def written_lines(*paths):
    """Yields for each file a function that writes a line to it; they appear when all is written.

    The bytes of a `.gz` file depend on its lines alone, not on the time. A path that is None is
    standard output, which gets each line at once.
    """
    with contextlib.ExitStack() as stack:
        partials = [path and stack.enter_context(replacing(path)) for path in paths]
        with contextlib.ExitStack() as streams:  # closed before the first file is in its place
            yield [_writer(*each, streams) for each in zip(paths, partials, strict=True)]


def _writer(path, partial, stack):
    if path is None:
        return lambda line: sys.stdout.buffer.write(line.encode("utf-8") + b"\n")
    stack.enter_context(naming(path))
    stream = stack.enter_context(open(partial, "wb"))
    if partial.suffix == ".gz":
        packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=stream, mtime=0)
        stream = stack.enter_context(packed)

    def write(line):
        with naming(path):
            stream.write(line.encode("utf-8") + b"\n")

    return write


def is_regular_file(path=None):
    """Returns whether a path, or standard input, is a file on disk, whose lines are all there."""
    status = _status(path, sys.stdin)
    return status is not None and stat.S_ISREG(status.st_mode)


def _status(path, stream):
    """Returns `os.stat` of a path, or of a stream for None; None where there is nothing."""
    try:
        return os.fstat(stream.fileno()) if path is None else os.stat(path)
    except (AttributeError, OSError):  # a program has replaced the stream
        return None


def check_readable(path):
    """Raises `ValueError` unless there is a file to read; does not open it, as it may be a pipe.

    None is standard input, which is always there; in `check_writable`, standard output.
    """
    if path is None:
        return
    path = pathlib.Path(path)
    if path.is_dir() or not os.access(path, os.R_OK):
        reason = "Is a directory" if path.is_dir() else "Permission denied"
        reason = reason if path.exists() else "No such file"
        raise InputError(f"Expected a file to read. Received: {path}: {reason}. Check the name.")


def check_writable(path):
    """Raises `ValueError` unless a file can be written to `path`, before the work for it starts."""
    if path is None:
        return
    if path == "-":
        raise InputError(
            "Expected the name of a file. Received: -. Write /dev/stdout for standard output, or "
            "./- for a file of this name."
        )
    path = pathlib.Path(path)
    if path.suffix in COMPRESSIONS and path.suffix != ".gz":
        raise InputError(f"Expected .gz, or no compression. Received: {path}. Name another file.")
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"Expected a file to write, in a directory that exists. Received: {path}. "
            "Make the directory, or choose another name."
        )


def check_no_input(output, inputs):
    """Raises `ValueError` where a file that is to be written is one that is read.

    Args:
        output: path of the file; None: standard output.
        inputs: paths of what is read; None for standard input.
    """
    written = _status(output, sys.stdout)
    if written is None or not stat.S_ISREG(written.st_mode):
        return
    for path in inputs:
        read = _status(path, sys.stdin)
        if read is not None and os.path.samestat(written, read):
            raise InputError(
                "Expected an output that is none of the inputs. Received: "
                f"{output or 'standard output'}, which is the input {path or 'standard input'}. "
                "Name another file."
            )


def check_directory(path, empty=False):
    """Raises `ValueError` unless `path` is a writable directory, or can become one.

    Args:
        path: path of the directory.
        empty: whether it must be empty, if there is one.
    """
    check_utf8("directory", os.fspath(path))  # TensorFlow writes to no other
    path = pathlib.Path(path)
    present = next(
        each for each in (path, *path.absolute().parents) if each.exists() or each.is_symlink()
    )
    if not present.is_dir() or not os.access(present, os.W_OK | os.X_OK):
        reason = "cannot be written" if present.is_dir() else "is a file"
        reason = reason if present.exists() else "is a link to nothing"
        raise InputError(
            f"Expected a directory to write to. Received: {path}, where {present} {reason}. "
            "Name another."
        )
    if empty and holds_files(path):
        raise InputError(
            f"Expected a new or empty directory. Received: {path}, which holds files. Name another."
        )


def check_utf8(name, text):
    """Raises `ValueError` where an argument of the command line is not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            f"Expected UTF-8 text. Received: {name} as {text.encode('utf-8', 'surrogateescape')}. "
            "Convert it to UTF-8."
        ) from None


def without_surrogates(text):
    """Returns a text with U+FFFD for half of a surrogate pair, as JSON has for a cut emoji."""
    if not isinstance(text, str) or text.isascii():
        return text
    try:
        text.encode()  # a third of the time of the other encoding
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def check_parallel(source_path, source, target_path, target):
    """Raises `ValueError` unless two files, of the lines given, have as many lines."""
    if len(source) != len(target):
        raise InputError(
            "Expected as many target lines as source lines. Received: "
            f"{source_path}: {len(source)} lines, {target_path}: {len(target)} lines. "
            "Line i of each file must belong to the same sentence."
        )


def _open(path):
    if path is None:
        return contextlib.nullcontext(sys.stdin.buffer)
    return decompressing(path, path)


def decompressing(path, source):
    """Returns a binary stream of what is in a file, decompressed as its name says.

    Args:
        path: path or address of the file.
        source: what is read: a path, or an open binary stream.
    Raises:
        ValueError: no package is installed that decompresses it.
    """
    match pathlib.Path(path).suffix:
        case ".gz":
            return gzip.open(source)
        case ".xz":
            return lzma.open(source)
        case ".zst":
            if zstd is None:
                raise InputError(
                    "Expected a package that decompresses .zst files. "
                    f"Received: {path}, but no such package. Run `pip install backports.zstd`."
                )
            return zstd.open(source)
        case _:
            return open(source, "rb") if isinstance(source, str | os.PathLike) else source


def _decode(line, name, number):
    try:
        return decode_line(line, number)
    except UnicodeDecodeError as error:
        raise InputError(
            f"Expected UTF-8 text. Received: {name}, line {number}: {error.reason} "
            f"(byte 0x{line[error.start]:02x}). Convert it to UTF-8."
        ) from None


def decode_line(line, number):
    """Returns the text of a line of bytes, without a byte order mark and carriage return.

    Args:
        line: bytes, without the line feed.
        number: of the line in its file, from 1.
    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    text = line.decode("utf-8")
    if number == 1:
        text = text.removeprefix("\ufeff")
    return text.removesuffix("\r")
