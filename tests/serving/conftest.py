"""Servers: as processes of their own, or in this process with models that need no graph."""

import contextlib
import importlib.util
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf

from keras_transformer.serving import versions as versions_module
from keras_transformer.serving.loaded_ctranslate2 import FunctionSignature
from keras_transformer.serving.server import Server
from keras_transformer.serving.settings import ServingConfig
from tests import forked

START_SECONDS = 300
SERVING_FILES = pathlib.Path(__file__).parents[2] / "export"
if not SERVING_FILES.exists():  # these tests are not in a clone
    collect_ignore_glob = ["test_serving_files*"]


class ServerProcess:
    """`keras-transformer serve`, at ports that the system chose.

    Args:
        directory: the versions of a model.
        flags: of the command.
        is_fresh: whether it runs in a fresh process, with the environment of a user, and not in a
            fork of one that has imported TensorFlow.
    Attributes:
        process: `subprocess.Popen` or `multiprocessing.Process`.
        lines: what it has written to standard error.
        rest: URL of the model; grpc: address; name: of the model.
    """

    def __init__(self, directory, *flags, is_fresh):
        command = ["-m", "keras_transformer", "serve", directory, "--port", "0"]
        command += ["--grpc-port", "0", "--poll-seconds", "0.2", *flags]
        command = [str(part) for part in command]
        read_end, write_end = os.pipe()
        with open(write_end, "wb") as errors, open(os.devnull, "r+b") as null:
            if is_fresh:
                # libraries that other tests import here set how much TensorFlow says
                env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
                self.process = subprocess.Popen([sys.executable, *command], stderr=errors, env=env)
            else:
                self.process = forked.start(command, (null, null, errors))
        self.lines = []
        threading.Thread(target=self._read, args=(read_end,), daemon=True).start()
        line = self.wait_for_line(r"serving \S+ at http")
        self.rest, self.name = re.search(r"(http://\S+/v1/models/(\S+))", line).groups()
        self.grpc = line.split()[-1]

    def _read(self, read_end):
        with open(read_end) as errors:
            for line in errors:
                self.lines.append(line.rstrip("\n"))

    def wait_for_line(self, pattern):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            for line in self.lines:
                if re.search(pattern, line):
                    return line
            if self.exit_code() is not None and time.monotonic() < end - 1:
                end = time.monotonic() + 1  # its last output may arrive late
            time.sleep(0.02)
        raise AssertionError(f"no line {pattern!r} among {self.lines}")

    def exit_code(self, seconds=0):
        """Returns the exit code, or None if the process still runs after the seconds."""
        if isinstance(self.process, subprocess.Popen):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
            return self.process.returncode
        self.process.join(seconds)
        return self.process.exitcode


class EchoModel:
    """A model that answers each text with itself.

    Loading takes the seconds in `saved_model.pb`; a run takes half a second if one of its texts
    begins with "slow". The signature attention cannot be batched, and has many values.
    """

    def __init__(self, path):
        time.sleep(float((path / "saved_model.pb").read_text()))
        text, number = {"text": (tf.string, (None,))}, (tf.float32, (None,))
        best = {
            "translation": (tf.string, (None,)),
            "score": number,
            "truncated": (tf.bool, (None,)),
        }
        weights = {"weights": (tf.float32, (None, None, None))}
        given = {**text, "prefix": (tf.string, (None,)), "terms": (tf.string, (None, None))}
        self.signatures = {
            "serving_default": FunctionSignature("serving_default", text, best, self._translate),
            "constrained": FunctionSignature("constrained", given, best, self._constrain),
            "attention": FunctionSignature("attention", text, weights, self._attend),
        }
        self.signature_defs = {name: s.signature_def for name, s in self.signatures.items()}

    def _translate(self, text):
        if any(one.startswith(b"slow") for one in text):
            time.sleep(0.5)
        score = np.array([-len(one) for one in text], np.float32)
        return {"translation": text, "score": score, "truncated": score < -100}

    def _constrain(self, text, prefix, terms):
        rows = zip(prefix, text, terms, strict=True)
        said = [b"%s%s %s" % (begin, one, b" ".join(each)) for begin, one, each in rows]
        return self._translate(np.array(said, object))

    def _attend(self, text):
        return {"weights": np.ones((len(text), 10, 10), np.float32)}

    def warm_up_others(self):
        pass

    def close(self):
        pass


class EchoServer(logging.Handler):
    """A `Server` in this process, with `EchoModel`s.

    Attributes:
        directory: of its versions.
        lines: warnings and errors that this process has logged since the server started.
        base: URL of the server; rest: of the model; grpc: address; name: of the model.
    """

    def __init__(self, directory, has_page=True, **settings):
        super().__init__(logging.WARNING)
        self.directory, self.lines, self.name = directory, [], "translator"
        self.add_version("1")
        settings = ServingConfig(poll_seconds=0.2, **settings)
        ports = {"port": 0, "grpc_port": 0}
        self._server = Server(directory, self.name, **ports, settings=settings, has_page=has_page)

    def add_version(self, name, loading_seconds=0):
        partial = self.directory / "partial"
        partial.mkdir()
        (partial / "saved_model.pb").write_text(str(loading_seconds))
        partial.rename(self.directory / name)

    def emit(self, record):
        self.lines.append(self.format(record))

    def __enter__(self):
        logging.getLogger().addHandler(self)
        self._server.start()
        self.base = f"http://127.0.0.1:{self._server.port}"
        self.rest = f"{self.base}/v1/models/{self.name}"
        self.grpc = f"127.0.0.1:{self._server.grpc_port}"
        return self

    def __exit__(self, *_):
        self._server.stop()
        logging.getLogger().removeHandler(self)


@pytest.fixture(scope="module")
def start_echo_server(tmp_path_factory):
    """A function that starts an `EchoServer`, with settings by name."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as servers:
        patch.setattr(versions_module, "LoadedModel", EchoModel)
        patch.setattr(versions_module, "_tidy_memory", lambda: None)

        def start(**settings):
            directory = tmp_path_factory.mktemp("echo")
            return servers.enter_context(EchoServer(directory, **settings))

        yield start


@pytest.fixture(scope="module")
def echo_server(start_echo_server):
    """A server of an `EchoModel`, with the settings of `keras-transformer serve`."""
    return start_echo_server()


@pytest.fixture
def program():
    """A function that imports a program in export/ or its copy, so that it can be called."""

    def program(name, directory=SERVING_FILES):
        spec = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        return program

    return program


@pytest.fixture
def run_program(program, monkeypatch, capsys):
    """A function that runs a program in export/; returns its output, or its error message."""

    def run_program(name, *flags, directory=SERVING_FILES):
        monkeypatch.setattr("sys.argv", [f"{name}.py", *map(str, flags)])
        try:
            program(name, directory).main()
        except SystemExit as error:
            return str(error)
        return capsys.readouterr().out

    return run_program


@pytest.fixture(scope="session")
def start_server():
    """A function that starts a `ServerProcess`; those that still run at the end are stopped."""
    started = []

    def start(directory, *flags, is_fresh=False):
        started.append(ServerProcess(directory, *flags, is_fresh=is_fresh))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.exit_code(60)


@pytest.fixture(scope="session")
def server(exported, start_server, tmp_path_factory):
    """A server of one version, or the one that the environment names.

    KERAS_TRANSFORMER_SERVER=http://HOST:8501/v1/models/NAME and
    KERAS_TRANSFORMER_SERVER_GRPC=HOST:8500 name another, TensorFlow Serving among them.
    """
    if url := os.environ.get("KERAS_TRANSFORMER_SERVER"):
        server = ServerProcess.__new__(ServerProcess)
        server.rest, server.name = url, url.rpartition("/")[2]
        server.grpc = os.environ["KERAS_TRANSFORMER_SERVER_GRPC"]
        return server
    directory = tmp_path_factory.mktemp("served") / "en-de"
    shutil.copytree(exported, directory / "1")
    return start_server(directory, "--label", "stable=1", "--no-page", is_fresh=True)


@pytest.fixture(scope="session")
def channel(server):
    """A gRPC channel to the server."""
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.fixture
def post(server):
    """A function that posts JSON, or bytes, to a path behind the model's; returns the response."""

    def post(body, path=":predict", **arguments):
        kind = "data" if isinstance(body, (bytes, str)) else "json"
        return requests.post(server.rest + path, timeout=60, **{kind: body}, **arguments)

    return post
