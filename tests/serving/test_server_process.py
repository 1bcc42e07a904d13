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

from keras_transformer import cli
from keras_transformer.export.saved_model import WARMUP_REQUESTS
from keras_transformer.files.checksums import remove_with_checksum
from keras_transformer.serving import LOG
from keras_transformer.serving.server import Server

BODY = {"instances": ["A dog runs."]}


def post(server, body=None, path=":predict", **arguments):
    arguments = {"json": body} if body is not None else arguments
    return requests.post(server.rest + path, timeout=60, **arguments)


def states(server):
    """Returns dict from version to state."""
    found = requests.get(server.rest, timeout=60).json()["model_version_status"]
    return {status["version"]: status["state"] for status in found}


def wait_until(is_true, seconds=120):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.05)


def metrics_of(server):
    base = server.rest.partition("/v1/")[0]
    page = requests.get(f"{base}/monitoring/prometheus/metrics", timeout=60).text
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {
        key.removeprefix(":tensorflow:serving:"): float(v)
        for key, v in (x.rsplit(" ", 1) for x in lines)
    }


def copy_without_warm_up(exported, path):
    """Copies an export without its warm-up requests, which take longer than all else here."""
    shutil.copytree(exported, path)
    remove_with_checksum(path, WARMUP_REQUESTS)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_process_loses_no_request_to_a_new_version_or_a_signal(
    exported, start_server, tmp_path, number, code
):
    directory = tmp_path / "m"
    copy_without_warm_up(exported, directory / "1")
    server = start_server(directory, "--batch-threads", "1", "--max-batch-size", "1")
    assert states(server) == {"1": "AVAILABLE"}
    is_over, answered = False, []

    def ask():
        with requests.Session() as session:
            while not is_over:
                answered.append(session.post(f"{server.rest}:predict", json=BODY).status_code)
                time.sleep(0.02)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask) for _ in range(2)]
        try:
            wait_until(lambda: len(answered) > 5)
            copy_without_warm_up(exported, directory / "half")  # not a number, so not a version
            (directory / "half").rename(directory / "2")
            wait_until(lambda: states(server) == {"1": "END", "2": "AVAILABLE"})
            before = len(answered)
            wait_until(lambda: len(answered) > before + 5)
        finally:
            is_over = True
    assert [future.result() for future in asking] == [None] * 2
    assert set(answered) == {200}
    assert post(server, BODY, "/versions/1:predict").status_code == 404
    body = {"instances": ["A dog runs. " * 60] * 10}
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(post, server, body) for _ in range(4)]
        # the rows of three requests would be 30: all four are accepted
        wait_until(lambda: metrics_of(server)["batching_session:queued_rows"] > 30)
        server.process.send_signal(number)
        assert [answer.result().status_code for answer in answers] == [200] * 4
    assert server.process.wait(60) == code
    with pytest.raises(requests.ConnectionError):
        post(server, BODY)
    end = "serving|loading version|ended version" + ("|interrupted" if code == 130 else "")
    for line in server.lines:  # no library says a word
        assert re.match(f"keras-transformer: ({end})", line), line


def test_a_second_signal_waits_for_no_request_and_no_version(exported, start_server, tmp_path):
    directory = tmp_path / "m"
    copy_without_warm_up(exported, directory / "1")
    server = start_server(directory, "--batch-threads", "1", "--max-batch-size", "1")
    (directory / "half").mkdir()
    os.mkfifo(directory / "half" / "saved_model.pb")  # reading it waits for a writer
    (directory / "half").rename(directory / "2")
    server.wait_for_line("loading version 2")
    body = {"instances": ["A dog runs. " * 60] * 250}
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        answer = thread.submit(post, server, body)
        wait_until(lambda: metrics_of(server)["batching_session:queued_rows"] > 200)
        server.process.terminate()
        wait_until(lambda: is_refused(server))
        server.process.terminate()
        assert server.process.wait(10) == 143
        with pytest.raises(requests.ConnectionError):
            answer.result()
    assert not any("Traceback" in line for line in server.lines)


def is_refused(server):
    try:
        metrics_of(server)
    except requests.ConnectionError:
        return True
    return False


def test_a_server_that_is_loading_is_stopped_at_once(tmp_path):
    (tmp_path / "1").mkdir()
    os.mkfifo(tmp_path / "1" / "saved_model.pb")  # reading it waits for a writer
    server = Server(tmp_path, port=0, grpc_port=0)
    starting = threading.Thread(target=server.start)
    starting.start()
    wait_until(lambda: any(thread.name == "loading" for thread in threading.enumerate()))
    start = time.monotonic()
    server.stop()
    starting.join(20)
    assert not starting.is_alive() and time.monotonic() - start < 10
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"")  # ends the thread that loads


def test_a_signal_that_another_thread_gets_is_obeyed(tmp_path):
    class Signalled(Exception):
        pass

    def handle(number, frame):
        raise Signalled

    def other_thread():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # does not wake the main thread
        time.sleep(5)
        server._ended.set()

    server = Server(tmp_path)
    previous = signal.signal(signal.SIGUSR1, handle)
    try:
        threading.Thread(target=other_thread, daemon=True).start()
        with pytest.raises(Signalled):
            server.wait()
        assert not server._ended.is_set(), "the signal was obeyed only after the wait"
    finally:
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
def test_a_server_that_cannot_start_says_why_in_one_line(exported, tmp_path, serve, case, message):
    ports = ["--port", "0", "--grpc-port", "0"]
    if case in ("broken", "hangs"):
        (tmp_path / "1").mkdir()
        model = tmp_path / "1" / "saved_model.pb"
        model.write_bytes(b"no model") if case == "broken" else os.mkfifo(model)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        arguments = {
            "empty": [tmp_path, *ports],
            "broken": [tmp_path, *ports],
            "hangs": [tmp_path, *ports, "--load-timeout", "0.2"],
            "version": [exported.parent, *ports, "--versions", "7"],
            "label": [exported.parent, *ports, "--label", "stable=7"],
            "port": [exported.parent, "--port", number, "--grpc-port", 0],
            "negative port": [exported.parent, "--port", 0, "--grpc-port", -1],
            "grpc port": [exported.parent, "--port", 0, "--grpc-port", number],
        }
        (line,) = serve(*arguments[case])
    assert message.format(number=number) in line
    if case == "hangs":
        model.write_bytes(b"")  # ends the thread that loads
