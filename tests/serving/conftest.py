"""Servers in their own processes, because a server disables XLA in its whole process."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import grpc
import pytest
import requests

START_SECONDS = 120


class ServerProcess:
    """`keras-transformer serve`, at ports that the system chose.

    Attributes:
        process: `subprocess.Popen`.
        lines: what it has written to standard error.
        rest: URL of the model; grpc: address; name: of the model.
    """

    def __init__(self, directory, *flags):
        command = [sys.executable, "-m", "keras_transformer", "serve", directory]
        command += ["--port", "0", "--grpc-port", "0", "--poll-seconds", "0.2", *flags]
        self.process = subprocess.Popen(
            [str(part) for part in command], stderr=subprocess.PIPE, text=True
        )
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()
        line = self.wait_for_line(r"serving \S+ at http")
        self.rest, self.name = re.search(r"(http://\S+/v1/models/(\S+))", line).groups()
        self.grpc = line.split()[-1]

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def wait_for_line(self, pattern):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            for line in self.lines:
                if re.search(pattern, line):
                    return line
            if self.process.poll() is not None and time.monotonic() < end - 1:
                end = time.monotonic() + 1  # its last output may arrive late
            time.sleep(0.02)
        raise AssertionError(f"no line {pattern!r} among {self.lines}")

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture
def kit_program():
    """A function that imports one of the kit's programs, so that its parts can be called."""

    def kit_program(name):
        path = pathlib.Path(__file__).parents[2] / "export" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        return program

    return kit_program


@pytest.fixture(scope="session")
def start_server():
    """A function that starts a `ServerProcess`; those that still run at the end are stopped."""
    started = []

    def start(directory, *flags):
        started.append(ServerProcess(directory, *flags))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()


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
    return start_server(directory, "--label", "stable=1")


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
