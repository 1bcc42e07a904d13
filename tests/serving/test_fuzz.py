"""Random bad requests: the server answers each, stays up, and leaks no memory."""

import json
import random
import socket
import string
import urllib.parse

import grpc
import pytest
import requests
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

NUM_REQUESTS = 150
NUM_RAW = 80
TEXTS = ["", "A dog runs.", "ä\U0001f44d\x00", "A cat sleeps. " * 20, {"b64": "YQ=="}]
GROWTH = 3 * 2**20  # bytes in a round; a leak of 20 KB per request would reach it


def resident(process):
    """Returns the resident memory of a process in bytes."""
    with open(f"/proc/{process.pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS")]
    return 1024 * int(line.split()[1])


def value(draw, depth=0):
    """Returns a random JSON value."""
    leaves = [
        "",
        "A dog.",
        "ä\U0001f44d\x00",
        0,
        -1.5,
        10**30,
        True,
        None,
        {"b64": "YQ=="},
        "a" * 999,
    ]
    if depth > 3 or draw.random() < 0.5:
        return draw.choice(leaves)
    if draw.random() < 0.5:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    keys = ["text", "target", "ids", "b64", "instances", "x"]
    return {draw.choice(keys): value(draw, depth + 1) for _ in range(draw.randrange(3))}


def body(draw):
    """Returns the bytes of a request's body: JSON, JSON that has been damaged, or noise."""
    kind = draw.random()
    if kind < 0.15:
        return draw.randbytes(draw.randrange(300))
    suits = [draw.choice(TEXTS) for _ in range(draw.randrange(4))]
    document = {draw.choice(["instances", "inputs"]): draw.choice([suits, value(draw)])}
    if draw.random() < 0.3:
        names = ["n_best", "score", "encode", "decode", "attention", "x", 5, ""]
        document["signature_name"] = draw.choice(names)
    encoded = bytearray(json.dumps(document).encode())
    if kind < 0.4:
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(encoded))
            encoded[place : place + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
    return bytes(encoded)


@pytest.fixture(scope="module")
def own_server(server):
    if not hasattr(server, "process"):
        pytest.skip("not at somebody else's server")
    return server


def test_every_request_is_answered(own_server, post):
    codes, growth = {}, None
    for number in range(5):  # a leak grows in every round, what is loaded or freed late does not
        before = resident(own_server.process)
        draw = random.Random(1)
        for _ in range(NUM_REQUESTS):
            others = ["/versions/1:predict", "/labels/a:predict", "x", ""]
            response = post(body(draw), draw.choice([":predict"] * 8 + others))
            assert response.headers["Content-Type"].startswith("application/json")
            document = response.json()
            assert response.status_code == 200 or list(document) == ["error"]
            codes[response.status_code] = codes.get(response.status_code, 0) + 1
        growth = resident(own_server.process) - before
        if number and growth < GROWTH:
            break
    assert set(codes) <= {200, 400, 404, 413} and codes[200] > 20 and codes[400] > 50, codes
    assert growth < GROWTH
    assert own_server.exit_code() is None


def test_bytes_that_are_no_http_close_the_connection(own_server, post):
    draw = random.Random(2)
    url = urllib.parse.urlsplit(own_server.rest)
    start = f"POST {url.path}:predict HTTP/1.1\r\nHost: x\r\n".encode()
    for _ in range(NUM_RAW):
        with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
            header = "".join(draw.choices(string.printable, k=draw.randrange(60))).encode()
            head = draw.choice([b"", start, start + header + b"\r\n"])
            connection.sendall(head + draw.randbytes(draw.randrange(200)) + b"\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):  # an answer or the end of the connection
                pass
    assert post({"instances": ["A dog runs."]}).status_code == 200


def message(draw, name):
    """Returns a `PredictRequest` of random parts, many of them valid."""
    request = predict_pb2.PredictRequest()
    if draw.random() < 0.2:  # a valid one
        request.model_spec.name = name
        texts = draw.choices([b"A dog.", b"", b"\xff"], k=draw.randrange(4))
        tensor = request.inputs["text"]
        tensor.dtype = types_pb2.DT_STRING
        tensor.tensor_shape.dim.add().size = len(texts)
        tensor.string_val.extend(texts)
        return request
    request.model_spec.name = draw.choice([name] * 9 + ["", "x"])
    names = ["", "n_best", "score", "encode", "decode", "attention", "x"]
    request.model_spec.signature_name = draw.choice(names)
    if draw.random() < 0.2:
        request.model_spec.version.value = draw.choice([1, 0, -1, 2**62])
    request.output_filter.extend(draw.choices(["score", "ids", "x"], k=draw.choice([0, 0, 1, 2])))
    for key in draw.choice([["text"], ["text", "target"], ["ids"], ["x"], []]):
        tensor = request.inputs[key]
        tensor.dtype = draw.choice([7, 7, 7, 3, 1, 9, 0, 99])
        tensor.tensor_shape.unknown_rank = draw.random() < 0.05
        for _ in range(draw.choice([1, 1, 1, 0, 2])):
            tensor.tensor_shape.dim.add().size = draw.choice([0, 1, 2, 2, 3, -1, 10**6, 2**62])
        fill = draw.random()
        if fill < 0.6:
            tensor.string_val.extend(draw.choices([b"A dog.", b"", b"\xff"], k=draw.randrange(4)))
        elif fill < 0.8:
            tensor.int_val.extend(draw.choices([0, 5, -1, 2**31 - 1], k=draw.randrange(4)))
        else:
            tensor.tensor_content = draw.randbytes(draw.randrange(20))
    return request


def test_every_message_is_answered(own_server):
    draw = random.Random(4)
    codes = {}
    with grpc.insecure_channel(own_server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for _ in range(NUM_REQUESTS):
            try:
                stub.Predict(message(draw, own_server.name), timeout=30)
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
            codes[code] = codes.get(code, 0) + 1
    assert codes["OK"] > 10 and codes["INVALID_ARGUMENT"] > 50
    assert set(codes) <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"}, codes
    assert own_server.exit_code() is None


def test_noise_at_the_port_of_grpc(own_server, post):
    draw = random.Random(3)
    host, _, port = own_server.grpc.rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for _ in range(NUM_RAW):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(draw.choice([b"", preface]) + draw.randbytes(draw.randrange(300)))
    assert requests.get(own_server.rest).status_code == 200
    assert post({"instances": ["A dog runs."]}).status_code == 200
