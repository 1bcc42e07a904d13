"""The start, the life and the end of a server, and of `keras-transformer serve` as a process."""

import concurrent.futures
import os
import re
import shutil
import signal
import socket
import threading
import time

import pytest
import requests
import tensorflow as tf

from keras_transformer import cli
from keras_transformer.export.saved_model import write_warmup_requests
from keras_transformer.serving import LOG
from keras_transformer.serving.server import Server
from tests.serving.clients import states, wait_until

PATIENT = ["--batch-threads", "1", "--max-batch-size", "1"]
PATIENT += ["--request-timeout", "600", "--grace-seconds", "600"]
"""Flags of a server that runs one row at a time, and gives up no request in the time of a test."""


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A SavedModel that writes to each text, which is the path of a file, and answers with it.

    If the path is that of a named pipe, the answer waits until somebody opens it for reading.
    """
    path, module = tmp_path_factory.mktemp("writer") / "1", tf.Module()

    def write(path):
        with tf.control_dependencies([tf.io.write_file(path, "x")]):
            return tf.identity(path)

    module.write = tf.function(
        lambda text: {"path": tf.map_fn(write, text)},
        input_signature=[tf.TensorSpec([None], tf.string, "text")],
    )
    tf.saved_model.save(module, path, signatures={"serving_default": module.write})
    return path


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def write_hanging(writer, path, pipe):
    """Writes an export whose loading waits until somebody reads a named pipe."""
    shutil.copytree(writer, path)
    write_warmup_requests(path, [("serving_default", {"text": [str(pipe)]})])


def ask(server, path, num_rows=1, version=""):
    """Asks the writer to write to a file, `num_rows` times; returns the response."""
    url = f"{server.rest}{version}:predict"
    return requests.post(url, json={"instances": [str(path)] * num_rows}, timeout=600)


def num_waiting(server):
    """Returns the number of rows that wait in the server."""
    base = server.rest.partition("/v1/")[0]
    page = requests.get(f"{base}/monitoring/prometheus/metrics", timeout=60).text
    return float(re.search("^:tensorflow:serving:batching_session:queued_rows (.*)", page, re.M)[1])


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_process_loses_no_request_to_a_new_version_or_a_signal(
    writer, start_server, tmp_path, pipe, number, code
):
    directory = tmp_path / "m"
    shutil.copytree(writer, directory / "1")
    server = start_server(directory, *PATIENT)
    assert states(server) == {"1": "AVAILABLE"}
    is_over, answered = False, []

    def ask_on():
        while not is_over:
            answered.append(ask(server, "/dev/null"))
            time.sleep(0.02)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask_on) for _ in range(2)]
        try:
            wait_until(lambda: len(answered) > 5)
            shutil.copytree(writer, directory / "half")  # not a number, so not a version
            (directory / "half").rename(directory / "2")
            wait_until(lambda: states(server) == {"1": "END", "2": "AVAILABLE"})
            before = len(answered)
            wait_until(lambda: len(answered) > before + 5)
        finally:
            is_over = True
    assert [future.result() for future in asking] == [None] * 2
    assert {answer.status_code for answer in answered} == {200}
    assert all(answer.json() == {"predictions": ["/dev/null"]} for answer in answered)
    assert ask(server, "/dev/null", version="/versions/1").status_code == 404
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(ask, server, pipe, 10) for _ in range(4)]
        wait_until(lambda: num_waiting(server) == 39)  # one row is being written
        os.kill(server.process.pid, number)
        wait_until(lambda: is_refused(server))
        assert server.exit_code() is None
        with open(os.open(pipe, os.O_RDWR), "rb"):
            assert [answer.result().status_code for answer in answers] == [200] * 4
    assert server.exit_code(300) == code
    said = [line for line in server.lines if "keras-transformer" in line or "Traceback" in line]
    said = [line for line in said if "loading the model" not in line]  # where that takes long
    end = "serving|the page for browsers|loading version|ended version" + (
        "|interrupted" if code == 130 else ""
    )
    for line in said:
        assert re.match(f"keras-transformer: ({end})", line), line
    assert len(said) == 8 + (code == 130)


def test_a_second_signal_waits_for_no_request_and_no_version(writer, start_server, tmp_path, pipe):
    directory = tmp_path / "m"
    shutil.copytree(writer, directory / "1")
    server = start_server(directory, *PATIENT)
    write_hanging(writer, directory / "half", pipe)
    (directory / "half").rename(directory / "2")
    server.wait_for_line("loading version 2")
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask, server, pipe, 2)
        wait_until(lambda: num_waiting(server) == 1)
        server.process.terminate()
        wait_until(lambda: is_refused(server))
        server.process.terminate()
        assert server.exit_code(300) == 143
        with pytest.raises(requests.ConnectionError):
            answer.result()
    assert not any("Traceback" in line for line in server.lines)


def is_refused(server):
    try:
        states(server)
    except requests.ConnectionError:
        return True
    return False


def test_a_server_that_is_loading_is_stopped_at_once(writer, tmp_path, pipe):
    write_hanging(writer, tmp_path / "m" / "1", pipe)
    server = Server(tmp_path / "m", port=0, grpc_port=0)
    starting = threading.Thread(target=server.start)
    starting.start()
    wait_until(lambda: any(thread.name == "loading" for thread in threading.enumerate()))
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    for thread in (stopping, starting):
        thread.join(300)  # less than the time limit of loading
        assert not thread.is_alive()
    pipe.read_bytes()  # ends the thread that loads


def test_a_signal_that_another_thread_gets_is_obeyed(tmp_path):
    class Signalled(Exception):
        pass

    def handle(number, frame):
        raise Signalled

    has_obeyed = threading.Event()

    def other_thread():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # does not wake the main thread
        if not has_obeyed.wait(60):
            server._ended.set()

    server = Server(tmp_path)
    previous = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(Signalled):
            threading.Thread(target=other_thread, daemon=True).start()
            server.wait()
        assert not server._ended.is_set(), "the signal was obeyed only after the wait"
    finally:
        has_obeyed.set()
        signal.signal(signal.SIGUSR1, previous)


@pytest.fixture
def serve(capsys):
    """A function that runs the command for a server that cannot start; returns its errors."""
    handlers = list(LOG.handlers)

    def serve(*arguments):
        try:
            code = cli.main(["serve", *map(str, arguments)])
        except SystemExit as usage_error:
            code = usage_error.code
        assert code == 2
        errors = capsys.readouterr().err.splitlines()
        return [line for line in errors if not re.search("warning|loading", line)]

    yield serve
    LOG.handlers = handlers


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("empty", "Expected an export in"),
        ("broken", "Expected an export that can be served"),
        ("hangs", "Loading was given up"),
        ("port", "--port {number}: "),
        ("negative port", "--grpc-port: expected a whole number from 0 to 65535; received: -1"),
        ("grpc port", "--grpc-port {number}: "),
        ("version", "Expected an export in"),
        ("label", "for the label stable"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(
    writer, tmp_path, pipe, serve, case, message
):
    directory = tmp_path / "m"
    directory.mkdir()
    ports = ["--port", "0", "--grpc-port", "0"]
    if case == "broken":
        (directory / "1").mkdir()
        (directory / "1" / "saved_model.pb").write_bytes(b"no model")
    if case == "hangs":
        write_hanging(writer, directory / "1", pipe)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        arguments = {
            "empty": [directory, *ports],
            "broken": [directory, *ports],
            "hangs": [directory, *ports, "--load-timeout", "1"],
            "version": [writer.parent, *ports, "--versions", "7"],
            "label": [writer.parent, *ports, "--label", "stable=7"],
            "port": [writer.parent, "--port", number, "--grpc-port", 0],
            "negative port": [writer.parent, "--port", 0, "--grpc-port", -1],
            "grpc port": [writer.parent, "--port", 0, "--grpc-port", number],
        }
        (line,) = serve(*arguments[case])
    assert message.format(number=number) in line
    if case == "hangs":
        pipe.read_bytes()  # ends the thread that loads
