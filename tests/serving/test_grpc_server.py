"""The gRPC port with hostile clients: idle, slow and stuck connections are closed."""

import asyncio
import contextlib
import socket
import struct
import time

import grpc
import pytest
import requests
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.grpc_server import GRPC_LOG, Calls
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.settings import ServingConfig
from tests.serving.clients import wait_until

SECONDS = 1.0
SHARE = 2
ALL = SHARE + 1  # with the spare connection for probes
HURRIED = dict(request_timeout=SECONDS, idle_timeout=SECONDS, max_connections=4 * SHARE)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture(scope="module")
def hurried(start_echo_server):
    """A server with short time limits, and two connections for gRPC."""
    return start_echo_server(**HURRIED)


@pytest.fixture(scope="module")
def channel(echo_server):
    """A gRPC channel to a server with the usual limits."""
    with grpc.insecure_channel(echo_server.grpc) as channel:
        yield channel


def frame(kind, flags=0, stream=0, payload=b""):
    """Returns an HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(server, message=None, stream=1):
    """Returns the frames of a Predict call: its headers, and its message if there is one."""
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/tensorflow.serving.PredictionService/Predict",
        b":authority": b"x",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    sent = frame(1, 4, stream, b"".join(header(*item) for item in headers.items()))
    if message is not None:
        content = message.SerializeToString()
        sent += frame(0, 1, stream, struct.pack(">BI", 0, len(content)) + content)
    return sent


def request(server, texts=("A dog runs.",)):
    message = predict_pb2.PredictRequest()
    message.model_spec.name = server.name
    message.inputs["text"].CopyFrom(tf.make_tensor_proto(list(texts)))
    return message


def predict(server, channel, **arguments):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(
        request(server, **arguments), timeout=30
    )


def connect(server, sent):
    host, _, port = server.grpc.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(sent)
    return connection


def is_closed(connection):
    """Returns at once whether the server has closed; discards received bytes."""
    connection.setblocking(False)
    try:
        while connection.recv(2**16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def hold(server, sent):
    """Returns a connection that was accepted, once earlier connections have gone."""
    while True:
        connection = connect(server, sent)
        time.sleep(0.1)
        connection.setblocking(False)
        try:
            if connection.recv(1, socket.MSG_PEEK):
                return connection
        except BlockingIOError:
            return connection
        except OSError:
            pass
        connection.close()


def answers(server):
    with grpc.insecure_channel(server.grpc) as channel, contextlib.suppress(grpc.RpcError):
        return len(predict(server, channel).outputs) > 0
    return False


def test_connections_over_the_limit_are_closed_and_idle_ones_after_a_while(hurried):
    wait_until(lambda: answers(hurried), 60)
    connections = [connect(hurried, PREFACE + frame(4)) for _ in range(40)]
    wait_until(lambda: sum(map(is_closed, connections)) >= 40 - ALL, 60)
    assert requests.get(hurried.rest, timeout=60).status_code == 200
    wait_until(lambda: all(map(is_closed, connections)), 60)
    wait_until(lambda: answers(hurried), 60)
    for connection in connections:
        connection.close()
    assert not hurried.lines


NO_WINDOW = PREFACE + frame(4, payload=struct.pack(">HI", 4, 0))  # the server may not send a byte


def test_clients_that_hold_all_connections_are_closed(start_echo_server):
    """Each of them at a server of its own, all at the same time."""
    held = {}
    with contextlib.ExitStack() as open_connections:
        for case in (
            "silent",
            "half a handshake",
            "no settings",
            "headers alone",
            "no window",
            "never reads",
        ):
            server = start_echo_server(**HURRIED)
            sent = {
                "silent": b"",
                "half a handshake": PREFACE[:10],
                "no settings": PREFACE,
                "headers alone": PREFACE + frame(4) + call(server),
                "no window": NO_WINDOW + call(server, request(server)),
                "never reads": PREFACE + frame(4) + call(server, request(server)),
            }[case]
            holders = [open_connections.enter_context(hold(server, sent)) for _ in range(ALL)]
            assert not answers(server), case
            held[case] = server, holders
        end = time.monotonic() + 30 * SECONDS
        while held:
            assert time.monotonic() < end, f"still held: {list(held)}"
            for case, (server, holders) in list(held.items()):
                # a client's pings keep a connection alive, up to its maximum age
                for holder in holders if case != "never reads" else ():
                    with contextlib.suppress(OSError):
                        _answer_pings(holder)
                if answers(server):
                    del held[case]
            time.sleep(0.05)


def _answer_pings(connection):
    connection.setblocking(False)
    content = connection.recv(2**16)
    while len(content) >= 9:
        size = int.from_bytes(content[:3], "big")
        kind, flags, payload = content[3], content[4], content[9 : 9 + size]
        if kind == 6 and not flags:
            connection.sendall(frame(6, 1, payload=payload))
        content = content[9 + size :]


def test_a_message_that_does_not_come_is_a_call_that_takes_too_long(hurried):
    wait_until(lambda: answers(hurried), 60)
    with grpc.insecure_channel(hurried.grpc) as channel:
        method = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as raised:
            method(_nothing(), timeout=30)
    assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert f"Timed out after {SECONDS:g} seconds" in raised.value.details()


def test_calls_without_a_message_hold_up_no_other_connection(echo_server, channel):
    silent = [call(echo_server, stream=number) for number in range(1, 128, 2)]
    with contextlib.ExitStack() as connections:
        for _ in range(9):  # 576 calls, more than may be open
            holder = connections.enter_context(connect(echo_server, PREFACE + frame(4)))
            holder.sendall(b"".join(silent) + frame(6, payload=b"received"))
            while b"received" not in holder.recv(2**16):  # the answer to the ping
                pass
        asked = health_pb2.HealthCheckRequest()
        assert health_pb2_grpc.HealthStub(channel).Check(asked, timeout=10).status
        predict_now = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        assert predict_now(request(echo_server), timeout=10).outputs


def test_a_probe_finds_a_connection_while_all_others_predict(hurried):
    wait_until(lambda: answers(hurried), 60)
    with contextlib.ExitStack() as connections:
        for _ in range(SHARE):  # calls that are open until their message has come
            connections.enter_context(hold(hurried, PREFACE + frame(4) + call(hurried)))
        with grpc.insecure_channel(hurried.grpc) as channel:
            asked = health_pb2.HealthCheckRequest()
            assert health_pb2_grpc.HealthStub(channel).Check(asked, timeout=10).status
            with pytest.raises(grpc.RpcError, match="at most 2 connections") as raised:
                predict(hurried, channel)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    wait_until(lambda: answers(hurried), 60)


class OneMessage:
    """A call on a connection of its own, whose message has some bytes."""

    def __init__(self, num_bytes):
        self._message = bytes(num_bytes)

    def peer(self):
        return str(id(self))

    async def read(self):
        return self._message


class BusyThread:
    """Reads no message for now."""

    async def parse(self, *_):
        await asyncio.Event().wait()


def test_messages_that_wait_to_be_parsed_are_bounded_in_bytes():
    async def check():
        settings = ServingConfig(max_queued_bytes=5 * 2**20)
        calls = Calls(settings, Metrics("m"), BusyThread())
        read = [
            asyncio.create_task(calls.read(predict_pb2.PredictRequest, OneMessage(size * 2**20)))
            for size in (3, 3, 2)
        ]
        done, waiting = await asyncio.wait(read, timeout=0.1)
        assert (done, waiting) == ({read[1]}, {read[0], read[2]})
        with pytest.raises(ServingError, match="no memory left for this request"):
            read[1].result()
        for task in waiting:
            task.cancel()

    asyncio.run(check())


def _nothing():
    time.sleep(3 * SECONDS)
    yield from ()


def test_calls_go_on_while_connections_come_of_age(hurried):
    wait_until(lambda: answers(hurried), 60)
    end = time.monotonic() + 3.5 * SECONDS
    with grpc.insecure_channel(hurried.grpc) as channel:
        while time.monotonic() < end:
            assert predict(hurried, channel).outputs
            time.sleep(0.01)


# === malformed messages, and calls that end early ===


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"\x0a\x7f", b"abc"])
@pytest.mark.parametrize(
    "method",
    [
        "tensorflow.serving.PredictionService/Predict",
        "tensorflow.serving.ModelService/GetModelStatus",
        "grpc.health.v1.Health/Check",
        "grpc.health.v1.Health/Watch",
    ],
)
def test_malformed_messages_are_refused_in_plain_words(channel, method, content):
    with pytest.raises(grpc.RpcError) as raised:
        list(channel.unary_stream(f"/{method}")(content, timeout=30))
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert f"Received {len(content)} bytes that cannot be parsed as one" in raised.value.details()


def test_a_call_without_a_message_is_refused(channel):
    method = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as raised:
        method(iter(()), timeout=30)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "Expected a PredictRequest. Received no message." in raised.value.details()


def test_calls_that_are_given_up_leave_no_line_in_the_log(echo_server, channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    slow = request(echo_server, ["slow"])
    for seconds in (0.001, 0.01, 0.05, 0.1, 0.2):
        with contextlib.suppress(grpc.RpcError):
            stub.Predict(slow, timeout=seconds)
    futures = [stub.Predict.future(slow) for _ in range(8)]
    for future in futures:
        time.sleep(0.02)
        future.cancel()
    assert predict(echo_server, channel).outputs
    assert not echo_server.lines
    report = "ExecuteBatchError raised in core by servicer method [/tensorflow.serving.X/Y]"
    GRPC_LOG.error(report)  # what gRPC says if it meets the end of a call at the wrong moment
    assert not echo_server.lines
    GRPC_LOG.error("something else")
    assert echo_server.lines == ["something else"]


# === health ===


def test_health_of_the_server_and_of_its_model(echo_server, channel):
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", echo_server.name):
        asked = health_pb2.HealthCheckRequest(service=name)
        assert stub.Check(asked, timeout=30).status == health_pb2.HealthCheckResponse.SERVING
        watching = stub.Watch(asked, timeout=30)
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        watching.cancel()
    asked = health_pb2.HealthCheckRequest(service="x")
    with pytest.raises(grpc.RpcError) as raised:
        stub.Check(asked, timeout=30)
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    status = next(stub.Watch(asked, timeout=30)).status
    assert status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
