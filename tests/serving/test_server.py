"""The embedded server: its limits, versions and metrics, with models that need no graph."""

import gzip
import http.client
import json
import pathlib
import resource
import socket
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

from keras_transformer.files.checksums import write_checksums
from keras_transformer.serving import memory
from tests.serving.clients import received, states, wait_until

BODY = {"instances": ["A dog runs."]}


@pytest.fixture(scope="module")
def limited(start_echo_server):
    """A server with low limits."""
    return start_echo_server(
        max_body_bytes=20_000,
        max_text_bytes=1000,
        max_rows=5,
        max_json_depth=6,
        max_connections=16,
        max_rows_alone=2,
        max_values=50,
    )


@pytest.fixture(scope="module")
def impatient(start_echo_server):
    """A server that gives up soon."""
    return start_echo_server(request_timeout=1.0)


def post(server, body=None, path=":predict", **arguments):
    arguments = {"json": body} if body is not None else arguments
    return requests.post(server.rest + path, timeout=60, **arguments)


def address_of(server):
    url = urllib.parse.urlsplit(server.rest)
    return url.hostname, url.port


# === limits ===


def test_a_request_over_a_limit_is_answered_413(limited):
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
    at_the_limits = {"instances": ["[" * 500, "a" * 1000, "", "", ""]}
    assert post(limited, at_the_limits).status_code == 200


def test_answers_that_would_be_too_large_are_refused(limited):
    body = {"signature_name": "attention", "instances": ["A dog runs on the street."] * 3}
    response = post(limited, body)
    assert response.status_code == 413 and "at most 2 rows" in response.json()["error"]
    body["instances"] = body["instances"][:1]
    response = post(limited, body)
    assert response.status_code == 413 and "at most 50 values" in response.json()["error"]


def test_gzip_is_inflated_and_a_bomb_is_not(limited):
    headers = {"Content-Encoding": "gzip"}
    expected = post(limited, BODY).json()
    body = gzip.compress(json.dumps(BODY).encode())
    assert post(limited, data=body, headers=headers).json() == expected
    bomb = gzip.compress(b'{"instances": ["' + b"a" * 10**7)
    for too_much in (bomb[:19_000], gzip.compress(b"a" * 30_000)):
        assert post(limited, data=too_much, headers=headers).status_code == 413
    halves = [gzip.compress(half) for half in (b'{"instances": ["A dog', b' runs."]}')]
    assert post(limited, data=b"".join(halves), headers=headers).json() == expected
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
    connection = http.client.HTTPConnection(*address_of(impatient), timeout=30)
    connection.putrequest("POST", "/v1/models/translator:predict")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b'{"instances"')
    response = connection.getresponse()
    assert response.status == 504 and b"within 1 seconds" in response.read()


def test_connections_over_the_limit_are_refused_until_others_go(limited):
    idle = [socket.create_connection(address_of(limited)) for _ in range(20)]
    try:
        wait_until(lambda: post(limited, BODY).status_code == 503)
        assert "at most 16 open connections" in post(limited, BODY).json()["error"]
    finally:
        for connection in idle:
            connection.close()
    wait_until(lambda: post(limited, BODY).status_code == 200)


def test_headers_and_trailers_without_end_are_given_up(limited):
    address, before = address_of(limited), list(limited.lines)
    post_chunked = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for head in (b"GET / HTTP/1.1\r\nX: ", b"GET /", post_chunked + b"0\r\nX: "):
        with socket.create_connection(address, timeout=20) as connection, pytest.raises(OSError):
            connection.sendall(head)
            for _ in range(10_000):  # 100 MB in all, if they were accepted
                connection.sendall(b"a" * 10_000)
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000)
        assert received(connection).startswith(b"HTTP/1.1 400 ")
    assert limited.lines == before


def test_slow_requests_are_given_up(impatient):
    address = address_of(impatient)
    whole = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
    part = b"GET /v1 HTTP/1.1\r\n"
    without_its_body = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    cases = [(b"", 0), (part, 0), (whole + part, 1), (without_its_body, 1)]
    # the time limit of a request does not apply between two requests
    patient = http.client.HTTPConnection(*address, timeout=20)
    patient.request("GET", "/v1/models/translator")
    assert patient.getresponse().read()
    answered_at = time.monotonic()
    connections = [socket.create_connection(address, timeout=20) for _ in cases]
    for connection, (sent, _) in zip(connections, cases, strict=True):
        connection.sendall(sent)
    for connection, (_, answers) in zip(connections, cases, strict=True):
        assert received(connection).count(b"404 Not Found") == answers
        connection.close()
    time.sleep(max(0, answered_at + 1.2 - time.monotonic()))
    patient.request("GET", "/v1/models/translator")
    assert patient.getresponse().read()
    patient.close()


def test_an_offer_of_http_2_is_declined_and_the_request_answered(limited):
    connection = http.client.HTTPConnection(*address_of(limited), timeout=20)
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAM"}
    for _ in range(2):  # on the same connection
        connection.request("POST", "/v1/models/translator:predict", json.dumps(BODY), headers)
        response = connection.getresponse()
        assert response.status == 200 and json.loads(response.read())["predictions"]
    connection.close()


def test_requests_one_behind_the_other_are_answered_in_turn(limited):
    text = json.dumps({"instances": ["A dog runs." + " " * 9000]})
    head = "POST /v1/models/translator:predict HTTP/1.1\r\nHost: x\r\n"
    first = f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode()
    with socket.create_connection(address_of(limited), timeout=20) as connection:
        connection.sendall(first + first + b"GET /nowhere HTTP/1.1\r\nHost: x\r\n")
        connection.sendall(b"Connection: close\r\n\r\n")
        found = received(connection)
    assert [found.count(code) for code in (b" 413 ", b" 404 ")] == [2, 1]


# === versions ===


def test_damaged_versions_are_reported_and_the_old_one_serves(start_echo_server):
    server = start_echo_server()

    def half(content):
        return content[: len(content) // 2]

    def flipped(content):  # in a bit of a weight: TensorFlow loads it
        place = len(content) // 2
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]

    for number, change in (("2", half), ("3", flipped)):
        copy = server.directory / "copy"
        weights = copy / "variables" / "variables.data-00000-of-00001"
        weights.parent.mkdir(parents=True)
        weights.write_bytes(bytes(range(100)))
        (copy / "saved_model.pb").write_text("0")
        write_checksums(copy)
        weights.write_bytes(change(weights.read_bytes()))
        copy.rename(server.directory / number)
        wait_until(lambda number=number: states(server).get(number) == "END")
        found = requests.get(f"{server.rest}/versions/{number}").json()
        status = found["model_version_status"][0]["status"]
        assert status["error_code"] == "DATA_LOSS"
        assert "variables.data-00000-of-00001 is not what" in status["error_message"]
        assert str(server.directory) not in status["error_message"]
        assert states(server)["1"] == "AVAILABLE" and post(server, BODY).status_code == 200
        assert f"warning: version {number} cannot be served" in "\n".join(server.lines)
    assert set(states(server)) == {"1", "2", "3"}


@pytest.fixture
def reload(start_echo_server, request):
    """A server of version 1, and a function that asks it for versions and labels by gRPC.

    The parameter is the server's time limit of a request.
    """
    server = start_echo_server(request_timeout=getattr(request, "param", 30.0))
    with grpc.insecure_channel(server.grpc) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)

        def reload(versions=(), timeout=60, labels=None, policy=None):
            request = model_management_pb2.ReloadConfigRequest()
            config = request.config.model_config_list.config.add(name=server.name)
            if policy is not None:
                config.model_version_policy.CopyFrom(policy)
            else:
                config.model_version_policy.specific.versions.extend(versions)
            config.version_labels.update(labels or {})
            stub.HandleReloadConfigRequest(request, timeout=timeout)

        yield server, reload


def test_versions_and_labels_are_moved_by_grpc(reload):
    server, reload = reload
    server.add_version("2")
    both = {"stable": 1, "canary": 2}
    reload([1, 2], labels=both)
    assert states(server) == {"1": "AVAILABLE", "2": "AVAILABLE"}
    for label, number in both.items():
        metadata = requests.get(f"{server.rest}/labels/{label}/metadata").json()
        assert metadata["model_spec"]["version"] == str(number)
        assert post(server, BODY, f"/labels/{label}:predict").status_code == 200
    metadata = requests.get(f"{server.rest}/metadata").json()
    assert metadata["model_spec"]["version"] == "2"
    for versions, labels in (([1, 2], {**both, "canary": 9}), ([1, 2, 9], {"stable": 1})):
        with pytest.raises(grpc.RpcError) as raised:
            reload(versions, labels=labels)
        assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "9" in raised.value.details()
        assert post(server, BODY, "/labels/canary:predict").status_code == 200
    reload([1])
    wait_until(lambda: states(server)["2"] == "END")
    metadata = requests.get(f"{server.rest}/metadata").json()
    assert metadata["model_spec"]["version"] == "1"


def test_each_version_policy_is_obeyed(reload):
    server, reload = reload
    server.add_version("2")
    wait_until(lambda: states(server) == {"1": "END", "2": "AVAILABLE"})
    everything = model_config().model_version_policy
    everything.all.SetInParent()
    reload(policy=everything)
    wait_until(lambda: states(server) == {"1": "AVAILABLE", "2": "AVAILABLE"})
    latest = model_config().model_version_policy
    latest.latest.num_versions = 1
    reload(policy=latest)
    wait_until(lambda: states(server) == {"1": "END", "2": "AVAILABLE"})
    latest.latest.num_versions = 2
    with pytest.raises(grpc.RpcError) as raised:
        reload(policy=latest)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def model_config():
    return model_management_pb2.ReloadConfigRequest().config.model_config_list.config.add()


def test_a_reload_that_its_caller_gives_up_is_done_all_the_same(reload):
    server, reload = reload
    reload([1])
    server.add_version("2", loading_seconds=0.5)
    with pytest.raises(grpc.RpcError) as raised:
        reload([1, 2], timeout=0.1)
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: states(server) == {"1": "AVAILABLE", "2": "AVAILABLE"})


@pytest.mark.parametrize("reload", [0.5], indirect=True)
def test_a_reload_has_no_time_limit_but_that_of_loading(reload):
    server, reload = reload
    reload([1])
    server.add_version("2", loading_seconds=0.8)  # more than the time limit of a request
    reload([1, 2])
    assert states(server) == {"1": "AVAILABLE", "2": "AVAILABLE"}


# === metrics ===


def metrics_of(server):
    base = server.rest.partition("/v1/")[0]
    page = requests.get(f"{base}/monitoring/prometheus/metrics", timeout=60).text
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {
        key.removeprefix(":tensorflow:serving:"): float(v)
        for key, v in (x.rsplit(" ", 1) for x in lines)
    }


def num_resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_that_a_request_has_freed_goes_back_to_the_system(start_echo_server, monkeypatch):
    monkeypatch.setattr(memory, "TRIM_SECONDS", 0.1)
    server = start_echo_server()
    blocks = [bytes(2000) for _ in range(100_000)]
    assert post(server, {"instances": ["A dog."], "ignored": "x" * 10**5}).status_code == 200
    before = num_resident()
    del blocks[:-1]  # the last is above all others, which the allocator therefore keeps
    end = time.monotonic() + 30
    while num_resident() > before - 150 * 10**6:
        assert time.monotonic() < end, "it is kept"
        time.sleep(0.05)


def test_metrics_have_the_names_of_tensorflow_serving(start_echo_server):
    server = start_echo_server()
    post(server, {"instances": ["A dog runs.", "A cat sleeps."]})
    values = metrics_of(server)
    ok = f'request_count{{model_name="{server.name}",status="OK"}}'
    latency = f'request_latency_count{{API="predict",entrypoint="REST",model_name="{server.name}"}}'
    rows = f'batching_session:batch_size_sum{{model_name="{server.name}"}}'
    assert values[ok] == 1 and values[latency] == 1 and values[rows] == 2
    assert 0 < values[latency.replace("count", "sum")] < 60e6  # microseconds
    post(server, {"instances": []})  # refused: counted, but without latency
    values = metrics_of(server)
    assert values[latency] == 1 and values[ok.replace("OK", "INVALID_ARGUMENT")] == 1
    page = requests.get(server.rest.partition("/v1/")[0] + "/monitoring/prometheus/metrics").text
    assert "# TYPE :tensorflow:serving:request_count counter\n" in page
