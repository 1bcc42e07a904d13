"""Runs Python programs in forks of one process that has imported TensorFlow.

A fresh process takes 3 seconds of CPU time for that import; a fork takes 0.1. The process computes
nothing itself, so it has one thread, and its forks are whole (`test_forked.py` counts its threads).
Each process of pytest-xdist has its own, started when a test first needs it.

A program that is tried in another backend, with other variables of TensorFlow or Keras, or before
their import needs a fresh process of its own: `subprocess.run([sys.executable, ...])`.
"""

import atexit
import functools
import multiprocessing.forkserver
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import types
from multiprocessing import reduction
from unittest import mock

IMPORTED = ["numpy", "tensorflow", "tensorflow_text", "keras"]
READ_BY_IMPORTS = ("KERAS_", "TF_", "XLA_", "PYTHON")
"""The beginnings of variables that are read once, when the process starts or imports."""


def run(arguments, *, input="", env=None, cwd=None, timeout=None):
    """Does what `subprocess.run([sys.executable, *arguments], ...)` does, with captured text.

    Args:
        arguments: list, `["-c", program, ...]`, `["-m", module, ...]` or `[path, ...]`.
        input: str, the standard input.
        env: dict, the environment; None: that of this process.
        cwd: the working directory; None: that of this process.
        timeout: seconds; after them the program is killed. None: no limit.

    Returns:
        A `subprocess.CompletedProcess`.
    Raises:
        subprocess.TimeoutExpired: when the time is up.
        ValueError: for other variables of the imports than the process was started with.
    """
    arguments = [os.fspath(argument) for argument in arguments]
    if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":  # JAX has threads
        command = [sys.executable, *arguments]
        options = dict(capture_output=True, text=True, input=input, env=env, cwd=cwd)
        return subprocess.run(command, **options, timeout=timeout)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as stdin,
        tempfile.TemporaryFile("r+", encoding="utf-8") as stdout,
        tempfile.TemporaryFile("r+", encoding="utf-8") as stderr,
    ):
        stdin.write(input)
        stdin.seek(0)
        process = start(arguments, (stdin, stdout, stderr), env=env, cwd=cwd)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout)
        for file in (stdout, stderr):
            file.seek(0)
        texts = stdout.read(), stderr.read()
        return subprocess.CompletedProcess(arguments, process.exitcode, *texts)


def start(arguments, files, *, env=None, cwd=None):
    """Starts a program and returns at once.

    Args:
        arguments: as for `run`.
        files: three open files or their descriptors, such as ends of pipes: the standard input,
            output and error output. The caller closes its own copies.
        env, cwd: as for `run`.

    Returns:
        A `multiprocessing.Process`, with `pid`, `join`, `terminate`, `kill`, and `exitcode`, which
        is the `returncode` of `subprocess`.
    """
    context, expected = _context()
    env = environment() if env is None else env
    env = {key: str(value) for key, value in env.items()}
    if read_by_imports(env) != expected:
        raise ValueError(
            f"Expected these variables, with which Keras was imported: {expected}. "
            f"Received: {read_by_imports(env)}. Use subprocess.run."
        )
    arguments = [os.fspath(argument) for argument in arguments]
    process = context.Process(
        target=_child, args=(arguments, _Files(files), env, os.fspath(cwd or os.getcwd()))
    )
    process.start()
    return process


def environment():
    """Returns the environment of this process, as it was when the forked one imported TensorFlow.

    The commands, which tests call in this process, set variables that are read by imports.
    """
    if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
        return dict(os.environ)
    _, read = _context()
    return {key: os.environ[key] for key in os.environ if not is_read_by_imports(key)} | read


def read_by_imports(env):
    return {name: value for name, value in env.items() if is_read_by_imports(name)}


def is_read_by_imports(name):
    return name.startswith(READ_BY_IMPORTS)


@functools.cache
def _context():
    """Starts the process that is forked; returns its context and what its imports have read."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with mock.patch.dict(os.environ, OPENBLAS_NUM_THREADS="1"):  # else NumPy starts threads
        multiprocessing.forkserver.ensure_running()
    return context, read_by_imports(os.environ)


class _Files:
    """Open files that are sent to the child while it is started."""

    def __init__(self, files):
        self.files = [file if isinstance(file, int) else file.fileno() for file in files]

    def __reduce__(self):
        return _received, tuple(map(reduction.DupFd, self.files))


def _received(*files):
    return [file.detach() for file in files]


def _child(arguments, files, env, cwd):
    """Becomes the program. Runs in the fork."""
    atexit._clear()  # what the forked process has registered is not the program's
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    tempfile.tempdir = None  # TMPDIR may be another one now
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    try:
        _run_to_the_end(*arguments)
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except Exception:
        sys.exit(1)


def _run_to_the_end(*arguments):
    """Runs the program and then what Python runs when it ends."""
    try:
        _run_program(*arguments)
    except (KeyboardInterrupt, Exception):
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        threading._shutdown()  # waits for threads
        atexit._run_exitfuncs()


def _run_program(first, *rest):
    if first == "-c":
        program, *sys.argv[1:] = rest
        sys.argv[0] = "-c"
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(main))
    elif first == "-m":
        module, *sys.argv[1:] = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = first, *rest
        sys.path.insert(0, str(pathlib.Path(first).resolve().parent))
        runpy.run_path(first, run_name="__main__")
