"""Imports TensorFlow without the messages that it writes to standard error as it starts.

TensorFlow 2.21 writes them before it reads `TF_CPP_MIN_LOG_LEVEL`, so standard error goes to a file
during the import. What does not come from TensorFlow's log, such as a warning of Python or a line
of another thread, is shown after the import; if the import fails, everything is. Warnings and
errors that come later are shown as always.

`TF_CPP_MIN_LOG_LEVEL=0` or `KERAS_TRANSFORMER_TRACEBACK=1` shows all messages. It is the way to see
why the import ended the whole process, for example on a processor without AVX: what was held back
is lost then.
"""

import contextlib
import ctypes
import os
import re
import sys
import tempfile

from keras_transformer import import_hooks

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""Environment variable of TensorFlow: 0 shows all messages, 1 hides notes, 2 warnings, 3 errors."""

TRACEBACK = "KERAS_TRANSFORMER_TRACEBACK"
"""Environment variable; if it is 1, errors show their traceback and libraries their messages."""

LOG_LINE = re.compile(
    rb"[IWE]\d{4} |[\d-]+ [\d:.]+: [IWE] |To enable the following|WARNING: All log messages before"
)


def register():
    """Makes the import of TensorFlow quiet, whoever imports it; too late if it is imported."""
    if "tensorflow" not in sys.modules:
        import_hooks.around_import("tensorflow", _import_quietly)


def wants_traceback():
    return os.environ.get(TRACEBACK, "0") not in ("", "0")


def _import_quietly(execute, tensorflow):
    if wants_traceback() or os.environ.get(LOG_LEVEL) == "0":
        return execute(tensorflow)
    with _notes_hidden(), _without_log_lines():
        execute(tensorflow)
        if not _has_nvidia_driver():
            # without one, TensorFlow reports an error when it looks for devices for the first time
            tensorflow.config.list_physical_devices()


@contextlib.contextmanager
def _notes_hidden():
    """Sets TensorFlow's log level, unless it is set; TensorFlow reads it once, in its import."""
    is_set = LOG_LEVEL in os.environ
    os.environ.setdefault(LOG_LEVEL, "1")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[LOG_LEVEL]


@contextlib.contextmanager
def _without_log_lines():
    """Holds back what is written to file descriptor 2, also by C++ code, and drops the log's lines.

    In a notebook the descriptor is captured; `sys.stderr` is another stream there, and stays.
    """
    try:
        written, standard_error = tempfile.TemporaryFile(), os.dup(2)
    except OSError:  # standard error is closed, or there is no place for a file
        yield
        return
    dropped = None
    _flush()
    os.dup2(written.fileno(), 2)
    try:
        yield
        dropped = LOG_LINE
    finally:
        _flush()
        os.dup2(standard_error, 2)
        os.close(standard_error)
        with written, contextlib.suppress(OSError):  # perhaps nobody reads it any more
            written.seek(0)
            for line in written:
                if dropped is None or not dropped.match(line):
                    os.write(2, line)


def _flush():
    # it may be None, closed, a program's own object without the method, or write to a full disk
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.flush()


def _has_nvidia_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True
