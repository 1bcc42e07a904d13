"""The embedded server as a process: limits, versions, start and end."""

import concurrent.futures
import contextlib
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import grpc
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from keras_transformer.export.saved_model import WARMUP_REQUESTS
from keras_transformer.files.checksums import write_checksums
from keras_transformer.serving.server import Server

BODY = {"instances": ["A dog runs."]}


@pytest.fixture(scope="module")
def limited(exported, start_server, tmp_path_factory):
    """A server with low limits."""
    directory = tmp_path_factory.mktemp("limited") / "m"
    shutil.copytree(exported, directory / "1")
    flags = "--max-body-bytes 20000 --max-text-bytes 1000 --max-rows 5 --max-json-depth 6"
    flags += " --max-connections 16 --max-rows-alone 2 --max-values 50"
    return start_server(directory, *flags.split())


@pytest.fixture(scope="module")
def impatient(exported, start_server, tmp_path_factory):
    """A server that gives up soon. It translates nothing here: a busy machine may take longer."""
    directory = tmp_path_factory.mktemp("impatient") / "m"
    shutil.copytree(exported, directory / "1")
    return start_server(directory, "--request-timeout", "3")


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


# === limits ===


def test_what_is_over_a_limit_is_answered_413(limited):
    deep = '{"instances": ' + "[" * 10 + '"a"' + "]" * 10 + "}"
    for arguments, message in [
        ({"data": b'{"instances": ["' + b"a" * 20000 + b'"]}'}, "a body of at most 20000 bytes"),
        ({"json": {"instances": ["a" * 1001]}}, "at most 1000 bytes in a text"),
        ({"json": {"instances": ["a"] * 6}}, "at most 5 rows of text"),
        ({"data": deep}, "at most 6 nested brackets"),
        ({"data": '{"a":' * 3000}, "at most 6 nested brackets"),
    ]:
        response = post(limited, **arguments)
        assert response.status_code == 413 and message in response.json()["error"], message
    brackets_in_a_text = {"instances": ["[" * 500]}
    assert post(limited, brackets_in_a_text).status_code == 200


def test_answers_that_would_be_too_large_are_refused(limited):
    body = {"signature_name": "attention", "instances": ["A dog runs on the street."] * 3}
    response = post(limited, body)
    assert response.status_code == 413 and "at most 2 rows" in response.json()["error"]
    body["instances"] = body["instances"][:1]
    response = post(limited, body)
    assert response.status_code == 413 and "at most 50 values" in response.json()["error"]


def test_gzip_is_inflated_and_a_bomb_is_not(limited):
    headers = {"Content-Encoding": "gzip"}
    body = gzip.compress(json.dumps(BODY).encode())
    assert post(limited, data=body, headers=headers).json() == post(limited, BODY).json()
    bomb = gzip.compress(b'{"instances": ["' + b"a" * 10**8)
    for too_much in (bomb[:19_000], gzip.compress(b"a" * 30_000)):
        assert post(limited, data=too_much, headers=headers).status_code == 413
    halves = [gzip.compress(half) for half in (b'{"instances": ["A dog', b' runs."]}')]
    assert (
        post(limited, data=b"".join(halves), headers=headers).json() == post(limited, BODY).json()
    )
    assert post(limited, data=gzip.compress(b"a" * 15_000) * 2, headers=headers).status_code == 413
    for broken in (b"no gzip", body[:-9], body + b"more"):
        response = post(limited, data=broken, headers=headers)
        assert response.status_code == 400 and "Expected a gzip body" in response.json()["error"]
    response = post(limited, data=b"x", headers={"Content-Encoding": "br"})
    assert response.status_code == 400


def test_limits_of_grpc(limited):
    with grpc.insecure_channel(limited.grpc) as channel:
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        for value, compression, code in [
            (["a"] * 6, None, grpc.StatusCode.INVALID_ARGUMENT),
            (["a" * 1001], None, grpc.StatusCode.INVALID_ARGUMENT),
            (["a" * 30_000], None, grpc.StatusCode.RESOURCE_EXHAUSTED),
            (["a" * 10_000_000], grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ]:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = limited.name
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(value))
            with pytest.raises(grpc.RpcError) as raised:
                predict(request, timeout=60, compression=compression)
            assert raised.value.code() == code
        # one string that stands for 1,000,000,000
        request = predict_pb2.PredictRequest()
        request.model_spec.name = limited.name
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
        request.inputs["text"].tensor_shape.dim[0].size = 10**9
        with pytest.raises(grpc.RpcError) as raised:
            predict(request, timeout=60)
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_other_methods_of_grpc_are_refused_in_words(limited):
    with grpc.insecure_channel(limited.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for method, request in [
            (stub.Classify, classification_pb2.ClassificationRequest()),
            (stub.Regress, regression_pb2.RegressionRequest()),
            (stub.MultiInference, inference_pb2.MultiInferenceRequest()),
        ]:
            with pytest.raises(grpc.RpcError) as raised:
                method(request, timeout=60)
            assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
            assert "Expected the method predict" in raised.value.details()


def test_a_body_that_never_ends_is_given_up(impatient):
    url = urllib.parse.urlsplit(impatient.rest)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    connection.putrequest("POST", url.path + ":predict")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b'{"instances"')
    response = connection.getresponse()
    assert response.status == 504 and b"within 3 seconds" in response.read()


def test_connections_over_the_limit_are_refused_until_others_go(limited):
    url = urllib.parse.urlsplit(limited.rest)
    address = (url.hostname, url.port)
    idle = [socket.create_connection(address) for _ in range(20)]
    try:
        wait_until(lambda: post(limited, BODY).status_code == 503)
        assert "at most 16 open connections" in post(limited, BODY).json()["error"]
    finally:
        for connection in idle:
            connection.close()
    wait_until(lambda: post(limited, BODY).status_code == 200)


def received(connection):
    """Returns everything until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionError):  # closed while this side was still sending
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def test_headers_and_trailers_without_end_are_given_up(limited):
    url = urllib.parse.urlsplit(limited.rest)
    address = (url.hostname, url.port)
    post_chunked = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for head in (b"GET / HTTP/1.1\r\nX: ", b"GET /", post_chunked + b"0\r\nX: "):
        with socket.create_connection(address, timeout=20) as connection, pytest.raises(OSError):
            connection.sendall(head)
            for _ in range(10_000):  # 100 MB in all, if they were accepted
                connection.sendall(b"a" * 10_000)
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000)
        assert received(connection).startswith(b"HTTP/1.1 400 ")
    assert not any("Traceback" in line for line in limited.lines)


def test_what_comes_too_slowly_is_given_up(impatient):
    url = urllib.parse.urlsplit(impatient.rest)
    address = (url.hostname, url.port)
    whole = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
    part = b"GET /v1 HTTP/1.1\r\n"
    without_its_body = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    cases = [(b"", 0), (part, 0), (whole + part, 1), (without_its_body, 1)]
    connections = [socket.create_connection(address, timeout=20) for _ in cases]
    for connection, (sent, _) in zip(connections, cases, strict=True):
        connection.sendall(sent)
    for connection, (_, answers) in zip(connections, cases, strict=True):
        assert received(connection).count(b"404 Not Found") == answers
        connection.close()
    # the time limit of a request does not apply between two requests
    connection = http.client.HTTPConnection(*address, timeout=20)
    for pause in (4, 0):
        connection.request("GET", url.path)
        assert connection.getresponse().read()
        time.sleep(pause)
    connection.close()


def test_an_offer_of_http_2_is_declined_and_the_request_answered(limited):
    url = urllib.parse.urlsplit(limited.rest)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAM"}
    for _ in range(2):  # on the same connection
        connection.request("POST", url.path + ":predict", json.dumps(BODY), headers)
        response = connection.getresponse()
        assert response.status == 200 and json.loads(response.read())["predictions"]
    connection.close()


def test_requests_one_behind_the_other_are_answered_in_turn(limited):
    url = urllib.parse.urlsplit(limited.rest)
    text = json.dumps({"instances": ["A dog runs." + " " * 9000]})
    head = f"POST {url.path}:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        first = (head + text).encode()
        connection.sendall(first + first + b"GET /nowhere HTTP/1.1\r\nHost: x\r\n")
        connection.sendall(b"Connection: close\r\n\r\n")
        found = received(connection)
    assert [found.count(code) for code in (b" 413 ", b" 404 ")] == [2, 1]


# === versions ===


@pytest.fixture(scope="module")
def growing(exported, start_server, tmp_path_factory):
    """A server of version 1, and its directory, to which tests add versions."""
    directory = tmp_path_factory.mktemp("growing") / "m"
    shutil.copytree(exported, directory / "1")
    return start_server(directory, "--batch-threads", "1"), directory


def test_a_new_version_takes_over_and_no_request_is_lost(growing, exported):
    server, directory = growing
    assert states(server) == {"1": "AVAILABLE"}
    is_over, answered = False, []

    def ask():
        with requests.Session() as session:
            while not is_over:
                answered.append(session.post(f"{server.rest}:predict", json=BODY).status_code)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask) for _ in range(4)]
        try:
            shutil.copytree(exported, directory / "half")  # not a number, so not a version
            (directory / "half").rename(directory / "2")
            wait_until(lambda: states(server) == {"1": "END", "2": "AVAILABLE"})
            wait_until(lambda: len(answered) > 20)  # a busy machine needs longer for as many
        finally:
            is_over = True
    assert [future.result() for future in asking] == [None] * 4
    assert set(answered) == {200} and len(answered) > 20
    response = post(server, BODY, "/versions/1:predict")
    assert response.status_code == 404


def test_a_version_that_cannot_be_loaded_is_said_and_the_old_one_stays(growing, exported):
    server, directory = growing
    for no_version in ("99999999999999999999", "٣", "1.5"):
        shutil.copytree(exported, directory / no_version)
    shutil.copytree(exported, directory / "copy")
    (directory / "copy" / "variables" / "variables.data-00000-of-00001").write_bytes(b"half")
    (directory / "copy").rename(directory / "3")
    wait_until(lambda: states(server).get("3") == "END")
    found = requests.get(f"{server.rest}/versions/3").json()["model_version_status"][0]
    assert found["status"]["error_code"] != "OK" and found["status"]["error_message"]
    assert str(directory) not in found["status"]["error_message"]
    assert states(server)["2"] == "AVAILABLE" and post(server, BODY).status_code == 200
    assert server.wait_for_line("warning: version 3 cannot be served")
    assert set(states(server)) == {"1", "2", "3"}
    shutil.rmtree(directory / "3")


def test_a_version_with_flipped_bits_is_not_served(growing, exported):
    server, directory = growing
    copy = shutil.copytree(exported, directory / "copy")
    weights = copy / "variables" / "variables.data-00000-of-00001"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1  # a bit of a weight: TensorFlow loads it
    weights.write_bytes(content)
    copy.rename(directory / "5")
    wait_until(lambda: states(server).get("5") == "END")
    found = requests.get(f"{server.rest}/versions/5").json()["model_version_status"][0]
    assert found["status"]["error_code"] == "DATA_LOSS"
    assert "variables.data-00000-of-00001 is not what" in found["status"]["error_message"]
    assert post(server, BODY).status_code == 200
    shutil.rmtree(directory / "5")


def test_versions_and_labels_are_moved_by_grpc(growing, exported):
    server, directory = growing
    request = model_management_pb2.ReloadConfigRequest()
    config = request.config.model_config_list.config.add(name=server.name)
    config.model_version_policy.specific.versions.extend([1, 2])
    config.version_labels.update({"stable": 1, "canary": 2})
    with grpc.insecure_channel(server.grpc) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        stub.HandleReloadConfigRequest(request, timeout=60)
        assert states(server)["1"] == states(server)["2"] == "AVAILABLE"
        for label, number in (("stable", 1), ("canary", 2)):
            metadata = requests.get(f"{server.rest}/labels/{label}/metadata").json()
            assert metadata["model_spec"]["version"] == str(number)
            assert post(server, BODY, f"/labels/{label}:predict").status_code == 200
        config.version_labels["canary"] = 9
        with pytest.raises(grpc.RpcError) as raised:
            stub.HandleReloadConfigRequest(request, timeout=60)
        assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert post(server, BODY, "/labels/canary:predict").status_code == 200
        del config.version_labels["canary"]
        config.model_version_policy.specific.versions.append(9)
        with pytest.raises(grpc.RpcError) as raised:
            stub.HandleReloadConfigRequest(request, timeout=60)
        assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "Received: 9" in raised.value.details()
        assert post(server, BODY, "/labels/canary:predict").status_code == 200
        config.model_version_policy.specific.versions.remove(9)
        config.model_version_policy.specific.versions.remove(2)  # back to version 1
        config.version_labels.clear()
        stub.HandleReloadConfigRequest(request, timeout=60)
    wait_until(lambda: states(server)["2"] == "END")
    metadata = requests.get(f"{server.rest}/metadata").json()
    assert metadata["model_spec"]["version"] == "1"


def test_of_two_versions_the_newest_answers_and_one_goes_after_its_slow_request(growing):
    server, _ = growing
    request = model_management_pb2.ReloadConfigRequest()
    config = request.config.model_config_list.config.add(name=server.name)
    config.model_version_policy.specific.versions.extend([1, 2])
    slow = {"instances": ["A dog runs. " * 60] * 200}
    with (
        grpc.insecure_channel(server.grpc) as channel,
        concurrent.futures.ThreadPoolExecutor(1) as thread,
    ):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        stub.HandleReloadConfigRequest(request, timeout=60)
        metadata = requests.get(f"{server.rest}/metadata").json()
        assert metadata["model_spec"]["version"] == "2"
        del config.model_version_policy.specific.versions[:]
        config.model_version_policy.specific.versions.append(1)
        answer = thread.submit(post, server, slow, "/versions/2:predict")
        wait_until(lambda: float(_metrics(server)["batching_session:queued_rows"]) > 0)
        stub.HandleReloadConfigRequest(request, timeout=60)
        assert states(server)["2"] == "UNLOADING" and not answer.done()
        assert answer.result().status_code == 200
        wait_until(lambda: states(server)["2"] == "END")


def test_a_version_that_hangs_while_it_is_loaded_is_given_up(tmp_path):
    (tmp_path / "1").mkdir()
    os.mkfifo(tmp_path / "1" / "saved_model.pb")  # reading it waits for a writer
    code, errors = serve(tmp_path, "--port", "0", "--grpc-port", "0", "--load-timeout", "2")
    assert code == 2 and "Loading was given up" in errors


def test_a_reload_that_its_caller_gives_up_is_done_all_the_same(growing):
    server, _ = growing
    wait_until(lambda: states(server)["2"] == "END")
    request = model_management_pb2.ReloadConfigRequest()
    config = request.config.model_config_list.config.add(name=server.name)
    config.model_version_policy.specific.versions.extend([1, 2])
    with grpc.insecure_channel(server.grpc) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        with pytest.raises(grpc.RpcError) as raised:
            stub.HandleReloadConfigRequest(request, timeout=0.5)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: states(server) == {"1": "AVAILABLE", "2": "AVAILABLE"} | only_ended(server))


def only_ended(server):
    return {number: state for number, state in states(server).items() if number not in "12"}


# === metrics ===


def test_metrics_have_the_names_of_tensorflow_serving(growing):
    server, _ = growing
    post(server, BODY)
    values = _metrics(server)
    ok = f'request_count{{model_name="{server.name}",status="OK"}}'
    assert float(values[ok]) >= 1
    latency = "request_latency_count"
    labels = f'{{API="predict",entrypoint="REST",model_name="{server.name}"}}'
    num_answered = float(values[latency + labels])
    assert num_answered >= 1
    post(server, {"instances": []})  # refused: counted, but without latency
    values = _metrics(server)
    assert float(values[latency + labels]) == num_answered
    assert float(values[ok.replace("OK", "INVALID_ARGUMENT")]) >= 1
    page = requests.get(server.rest.partition("/v1/")[0] + "/monitoring/prometheus/metrics").text
    assert "# TYPE :tensorflow:serving:request_count counter\n" in page


# === start and end ===


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_lets_accepted_requests_finish(exported, start_server, tmp_path, number, code):
    shutil.copytree(exported, tmp_path / "m" / "1")
    server = start_server(tmp_path / "m", "--batch-threads", "1", "--max-batch-size", "1")
    body = {"instances": ["A dog runs. " * 60] * 40}
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(post, server, body) for _ in range(4)]
        # the rows of three requests would be 120: all four are accepted
        wait_until(lambda: float(_metrics(server)["batching_session:queued_rows"]) > 120)
        server.process.send_signal(number)
        assert [answer.result().status_code for answer in answers] == [200] * 4
    assert server.process.wait(60) == code
    with pytest.raises(requests.ConnectionError):
        post(server, BODY)


def test_a_second_signal_waits_for_no_request(exported, start_server, tmp_path):
    shutil.copytree(exported, tmp_path / "m" / "1")
    server = start_server(tmp_path / "m", "--batch-threads", "1", "--max-batch-size", "1")
    body = {"instances": ["A dog runs. " * 60] * 250}
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        answer = thread.submit(post, server, body)
        wait_until(lambda: float(_metrics(server)["batching_session:queued_rows"]) > 200)
        server.process.terminate()
        wait_until(lambda: _is_refused(server))
        server.process.terminate()
        assert server.process.wait(10) == 143
        with pytest.raises(requests.ConnectionError):
            answer.result()
    assert not any("Traceback" in line for line in server.lines)


def _is_refused(server):
    try:
        _metrics(server)
    except requests.ConnectionError:
        return True
    return False


def test_a_signal_ends_a_server_that_is_loading_at_once(exported, tmp_path):
    version = shutil.copytree(exported, tmp_path / "m" / "1")
    warmup = version / WARMUP_REQUESTS
    warmup.write_bytes(warmup.read_bytes() * 1000)  # so that loading takes minutes
    write_checksums(version)
    command = [sys.executable, "-m", "keras_transformer", "serve", str(tmp_path / "m")]
    command += ["--port", "0", "--grpc-port", "0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        assert any("loading version 1" in line for line in process.stderr)
        process.terminate()
        errors = process.stderr.read()
        assert process.wait(5) == 143 and not errors


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


def _metrics(server):
    base = server.rest.partition("/v1/")[0]
    page = requests.get(f"{base}/monitoring/prometheus/metrics", timeout=60).text
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {
        key.removeprefix(":tensorflow:serving:"): v for key, v in (x.rsplit(" ", 1) for x in lines)
    }


def serve(*arguments):
    """Returns the exit code and the standard error of a server that cannot start."""
    command = [sys.executable, "-m", "keras_transformer", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=_environment())
    return done.returncode, done.stderr


def _environment():
    """Returns the environment without the variables that these tests set for TensorFlow."""
    return {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("empty", "Expected an export in"),
        ("broken", "Expected an export that can be served"),
        ("port", "--port {number}: "),
        ("no grpc port", "--grpc-port: expected a whole number from 0 to 65535; received: -1"),
        pytest.param("grpc port", "--grpc-port {number}: ", marks=pytest.mark.slow),
        pytest.param("version", "Expected an export in", marks=pytest.mark.slow),
        pytest.param("label", "for the label stable", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(exported, tmp_path, case, message):
    ports = ["--port", "0", "--grpc-port", "0"]
    if case == "broken":
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "saved_model.pb").write_bytes(b"no model")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        arguments = {
            "empty": [tmp_path, *ports],
            "broken": [tmp_path, *ports],
            "version": [exported.parent, *ports, "--versions", "7"],
            "label": [exported.parent, *ports, "--label", "stable=7"],
            "port": [exported.parent, "--port", number, "--grpc-port", 0],
            "no grpc port": [exported.parent, "--port", 0, "--grpc-port", -1],
            "grpc port": [exported.parent, "--port", 0, "--grpc-port", number],
        }
        code, errors = serve(*arguments[case])
    lines = [line for line in errors.splitlines() if not re.search("warning|loading", line)]
    assert code == 2 and len(lines) == 1, (code, errors)
    assert message.format(number=number) in lines[0]
