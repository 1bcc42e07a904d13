"""How the command behaves as a process: exit codes, errors of one line, no chatter.

Exit codes: 0 success; 2 usage or input error; 1 anything else; 128 + n when signal n ended it, so
130 interrupted, 143 terminated, 141 when the reader of the output has gone.

An input error is an `InputError`, which the package raises for bad input, a path that the system
refuses, or TensorFlow where it is needed and missing. Any other `ValueError` comes from Keras,
TensorFlow or a bug of ours. It is not the user's mistake and ends with exit code 1.
"""

import contextlib
import errno
import importlib
import importlib.util
import json
import logging
import os
import pathlib
import signal
import sys
import tempfile
import traceback
import warnings

from keras_transformer.errors import InputError, shortened

PROGRAM = "keras-transformer"
REFUSED_PATHS = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
REFUSED_ERRORS = (errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS)
"""Further errors of this kind, for which Python has no class."""
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the command as an exception does, so that half-written files are removed."""
BACKENDS = {"tensorflow": "tensorflow", "jax": "jax[cpu]", "torch": "torch"}
"""The Keras backends that the package runs on, and what pip installs for each."""
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""Environment variable of TensorFlow: 0 shows all messages, 1 hides notes, 2 warnings, 3 errors."""
TRACEBACK = "KERAS_TRANSFORMER_TRACEBACK"
"""Environment variable; if it is 1, errors show their traceback and libraries their messages."""
NO_TENSORFLOW = (
    "TensorFlow and tensorflow-text are needed here and cannot be imported. Install them (pip "
    "install tensorflow tensorflow-text): they have wheels for Python 3.10 to 3.13 on Linux "
    "(x86-64 and ARM) and on macOS (Apple processors); elsewhere use a Linux container, or WSL 2 "
    "on Windows. Without them, commands run with KERAS_BACKEND=jax or torch, but for SavedModels, "
    "the server, WordPiece training, and data sets of TFDS."
)
OTHER_DISTRIBUTION = "keras-transformer"
"""Another project on the package index, whose files have the import name of this package."""
_shown: int | None = None
"""The descriptor of standard error while number 2 is another, see `messages_dropped`."""


def run(command):
    """Calls `command()` and returns the exit code; says in one line what went wrong.

    Args:
        command: returns an exit code; None is 0.
    """
    _open_missing_streams()
    if hasattr(sys.stdout, "reconfigure"):  # it is no stream of a program
        sys.stdout.reconfigure(errors="surrogateescape")  # prints a path that is not UTF-8 as it is
    previous = {
        number: signal.signal(number, _exit_by_signal)
        for number in ENDING
        if signal.getsignal(number) is not signal.SIG_IGN  # as for nohup
    }
    try:
        code = command() or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt as error:
        say(f"interrupted{_notes_of(error)}")
        return 128 + signal.SIGINT
    except SystemExit as error:
        if notes := _notes_of(error):
            say(f"terminated{notes}")
        raise
    except Exception as error:
        if wants_traceback():
            traceback.print_exc()
        if (signal_number := getattr(error, "signal_number", None)) is not None:
            say(str(error))  # training, which saves its work before it obeys
            return 128 + signal_number
        refused = isinstance(error, OSError) and error.errno in REFUSED_ERRORS
        if refused or isinstance(error, (InputError, *REFUSED_PATHS)):
            say(f"error: {' '.join(str(error).split())}{_notes_of(error)}")
            return 2
        library = getattr(error, "name", None) if isinstance(error, ImportError) else None
        if (library or "").partition(".")[0] in ("tensorflow", "tensorflow_text"):
            say(f"error: {NO_TENSORFLOW} ({error})")
            return 2
        if isinstance(error, (ImportError, AttributeError)) and _has_other_distribution():
            say(
                f"failed: the distribution {OTHER_DISTRIBUTION} of another project has overwritten "
                f"files of this package. Uninstall it (pip uninstall {OTHER_DISTRIBUTION}), and "
                f"install this package again. ({error})"
            )
            return 1
        first_line = (str(error).strip().splitlines() or ["no message"])[0]
        say(
            f"failed: {type(error).__name__}: {first_line}{_notes_of(error)} "
            f"({TRACEBACK}=1 shows where)"
        )
        return 1
    finally:
        _discard_unwritable_output()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _notes_of(error):
    """Returns what was noted of an error on its way, such as where unfinished work is kept."""
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()))


def start_keras(to_search=False):
    """Imports Keras and the library of its backend without their messages.

    Later messages are hidden too, also errors, which reach the command as exceptions.
    `TF_CPP_MIN_LOG_LEVEL=0` or `KERAS_TRANSFORMER_TRACEBACK=1` shows all. It is the way to see why
    the import ended the whole process, for example on a processor without AVX.

    Args:
        to_search: whether the command only searches, and each operation shall have one thread.
    Raises:
        ValueError: the backend that Keras is set to does not exist or is not installed.
    """
    check_backend()
    if not wants_traceback():
        os.environ.setdefault(LOG_LEVEL, "3")
        warnings.simplefilter("ignore")
        shown = os.environ[LOG_LEVEL] == "0"
        with _signals_held(), contextlib.nullcontext() if shown else messages_dropped():
            importlib.import_module("keras")
        for library in ("absl", "tensorflow", "matplotlib"):
            logging.getLogger(library).setLevel(logging.ERROR)
    if to_search:
        importlib.import_module("keras_transformer.backend").one_thread_per_operation()


def check_backend(for_export=False):
    """Refuses a wrong backend at once; Keras needs seconds for it and explains less.

    If no backend is set and TensorFlow is not installed, Keras gets the one that is.

    Args:
        for_export: whether the command writes a SavedModel, as only the TensorFlow backend can.
    """
    source, backend = "KERAS_BACKEND", os.environ.get("KERAS_BACKEND")
    if not backend:
        source, backend = os.getenv("KERAS_HOME", "~/.keras") + "/keras.json: backend", None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            path = os.path.expanduser(source.removesuffix(": backend"))
            backend = json.loads(pathlib.Path(path).read_text()).get("backend")
        if backend in (None, "tensorflow"):  # Keras writes the latter to that file by itself
            installed = filter(importlib.util.find_spec, BACKENDS)
            source, backend = "KERAS_BACKEND", next(installed, "tensorflow")
            if backend != "tensorflow":
                os.environ["KERAS_BACKEND"] = backend
    if backend not in BACKENDS:
        raise InputError(
            f"Expected a backend of Keras: {', '.join(BACKENDS)}. Received: {source}={backend}. "
            "Choose one of them."
        )
    if importlib.util.find_spec(backend) is None:
        raise InputError(
            f"Expected a backend of Keras that is installed. Received: {source}={backend}. "
            f'Install it (pip install "{BACKENDS[backend]}"), or choose another.'
        )
    if for_export and backend != "tensorflow":
        raise InputError(
            "Expected Keras on TensorFlow, which a SavedModel needs. "
            f"Received: {source}={backend}. Choose tensorflow: it loads the same weights."
        )


class LogLines(logging.Handler):
    """Says each message of a logger."""

    def emit(self, record):
        say(record.getMessage())


def end_at_once(signalled):
    """Ends the process as `run` does after a signal, without waiting for other threads.

    Args:
        signalled: the `KeyboardInterrupt` or `SystemExit` that the signal has raised.
    """
    interrupted = isinstance(signalled, KeyboardInterrupt)
    if interrupted:
        say("interrupted")
    with contextlib.suppress(OSError):  # perhaps nobody reads the output any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + signal.SIGINT if interrupted else signalled.code)


def say(text):
    """Prints a line to standard error after the program's name; ignored if nobody reads it."""
    line = f"{PROGRAM}: {shortened(text)}\n"
    with contextlib.suppress(OSError):
        if _shown is not None:
            os.write(_shown, line.encode(errors="backslashreplace"))
            return
        # in one piece: `print` would write the line break by itself, after that of another thread
        print(line, end="", file=sys.stderr, flush=True)


def print_result(text, done, stream=None):
    """Prints what a command has made; where the disk is full, the error says that it is `done`.

    Args:
        stream: where to; None: standard output.
    """
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(f"{done}, but this could not be printed: {error.strerror}") from None


@contextlib.contextmanager
def _signals_held():
    """Delivers signals only at the end: C++ code loses them in an import, or crashes."""
    received = []
    handlers = {
        number: signal.signal(number, lambda number, _frame: received.append(number))
        for number in (signal.SIGINT, *ENDING)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


@contextlib.contextmanager
def messages_dropped():
    """Drops what is written to file descriptor 2, also by C++ code, unless the block fails.

    TensorFlow 2.21 writes notes in its import before it reads `TF_CPP_MIN_LOG_LEVEL`.
    """
    try:
        written, standard_error = tempfile.TemporaryFile(), os.dup(2)
    except OSError:  # standard error is closed, or there is no place for a file
        yield
        return
    global _shown
    sys.stderr.flush()
    os.dup2(written.fileno(), 2)
    _shown = standard_error
    try:
        yield
    except BaseException:
        sys.stderr.flush()
        written.seek(0)
        os.write(standard_error, written.read())
        raise
    finally:
        sys.stderr.flush()
        os.dup2(standard_error, 2)
        _shown = None
        os.close(standard_error)
        written.close()


def _open_missing_streams():
    """Opens the null device for each standard stream that the caller has closed."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free number: that of the stream
            setattr(sys, name, open(null, "w" if descriptor else "r", encoding="utf-8"))


def _discard_unwritable_output():
    """Keeps Python from writing it again when it exits, which would end with exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader has gone, or the disk is full
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except ValueError:  # a library has closed it
            pass


def _has_other_distribution():
    import importlib.metadata  # here, because it takes time and no command that works needs it

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(OTHER_DISTRIBUTION))
    return False


def wants_traceback():
    return os.environ.get(TRACEBACK, "0") not in ("", "0")


def _exit_by_signal(number, _frame):
    sys.exit(128 + number)
