"""HTTP as a client sees it: RFC 9112, limits of size and time, and hostile clients."""

import asyncio
import contextlib
import resource
import socket
import threading
import time

import pytest

from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.http_connection import HEAD_BYTES, NOT_FOUND, Response
from keras_transformer.serving.http_server import NUM_SPARE, HttpServer
from keras_transformer.serving.settings import ServingConfig
from tests.serving.clients import received, wait_until

GET = b"GET /v1 HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSE = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CHUNKED = b"POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Echo:
    """An application that answers with the method, the path and the size of the body."""

    def __init__(self):
        self.release = threading.Event()
        self.cancelled = threading.Event()

    async def answer(self, request):
        if request.path == "/large":
            return Response(200, b"a" * 50_000_000)
        if request.path == "/broken":
            raise RuntimeError("a slip of the application's")
        try:
            while request.path == "/slow" and not self.release.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Response(200, f"{request.method} {request.path} {len(request.body)}".encode())

    def refusal_of_body(self, path):
        return NOT_FOUND if path == "/nowhere" else None

    def refuse(self, error):
        assert isinstance(error, ServingError)
        return Response(error.http_status, str(error).encode())


class Running:
    """An `HttpServer` in a thread of its own."""

    def __init__(self, **settings):
        self.application = Echo()
        self.server = None
        self._settings = ServingConfig(**settings)
        self._is_ready, self._stop, self._loop = threading.Event(), None, None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.address = listener.getsockname()
            server = HttpServer(listener, self.application, self._settings)
            self.server = server
            await server.start()
            self._is_ready.set()
            await self._stop.wait()
            await server.stop(self._settings.grace_seconds)

    def __enter__(self):
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_):
        self.application.release.set()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def connect(self):
        return socket.create_connection(self.address, timeout=20)

    def ask(self, sent):
        """Returns everything until the server closes, or this side does after a while."""
        with self.connect() as connection:
            connection.sendall(sent)
            return received(connection)

    def seconds_of_get(self):
        """Returns the seconds that a status request takes, which must be answered."""
        start = time.monotonic()
        assert b" 200 OK" in self.ask(CLOSE)
        return time.monotonic() - start


def answered(text):
    """Returns the status codes of the answers in received bytes, in order."""
    return [int(part[:3]) for part in text.split(b"HTTP/1.1 ")[1:]]


@pytest.fixture(scope="module")
def running():
    with Running(max_body_bytes=10_000, request_timeout=1.0, idle_timeout=1.0) as running:
        yield running


# === the protocol ===


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        (GET + CLOSE, [200, 200]),
        (b"\r\n" + CLOSE, [200]),  # an empty line before a request is ignored
        (b"GET /v1 HTTP/1.1\nHost: x\n\n" + CLOSE, [400]),  # a bare LF
        (b"GET /v1 HTTP/1.1\r\nHost: x\r\nA: b\n c\r\n\r\n" + CLOSE, [400]),
        (b"GET /v1 HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n" + CLOSE, [400]),  # a folded line
        (b"GET /v1 HTTP/2.0\r\nHost: x\r\n\r\n" + CLOSE, [505]),
        (b"GET /v1 HTTP/1.1\r\n\r\n" + CLOSE, [400]),  # no host
        (
            b"GET /v1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + CLOSE,
            [200],
        ),  # keep-alive in HTTP/1.0 is not honoured
        (b"nonsense\r\n\r\n" + CLOSE, [400]),
        (b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n", []),
        (CHUNKED + b"x\r\n" + CLOSE, [400]),
        (CHUNKED + b"0\r\nX: y\r\n\r\n" + CLOSE, [200, 200]),
        (CHUNKED + b"0\r\n\n" + CLOSE, [400]),  # a bare LF behind the last chunk
        (CHUNKED + b"0\r\nX: y\n\n" + CLOSE, [400]),
        (CHUNKED + b"0\r\nX: y\nZ: 0\r\n\r\n" + CLOSE, [400]),
        (CHUNKED + b"0\r\nX: y\n z\r\n\r\n" + CLOSE, [400]),  # a folded line
        (b"POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n" + CLOSE, [501]),
        (b"POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1e3\r\n\r\n" + CLOSE, [400]),
        (b"POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n" + CLOSE, [504]),
        (b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n" + CLOSE, [404]),
    ],
)
def test_requests_are_read_as_the_standard_says(running, sent, codes):
    found = running.ask(sent)
    assert answered(found) == codes
    assert b"Connection: close" in found or not codes


def test_two_lengths_of_a_body_end_the_connection(running):
    both = CHUNKED.replace(b"Host", b"Content-Length: 5\r\nHost")
    found = running.ask(both + b"0\r\n\r\n" + CLOSE)  # the last one would be a smuggled request
    assert answered(found) == [200] and b"Connection: close" in found


def test_a_target_in_absolute_form_is_its_path(running):
    for target in (b"http://a.b:80/v1/x?y", b"HTTP://a/v1/x"):
        found = running.ask(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert found.endswith(b"GET /v1/x 0")


def test_headers_may_have_16_kilobytes(running):
    start, end = b"GET /v1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: ", b"\r\n\r\n"
    space = HEAD_BYTES - len(start) - len(end)
    assert answered(running.ask(start + b"a" * space + end)) == [200]
    assert answered(running.ask(start + b"a" * (space + 1) + end)) == [400]
    assert answered(running.ask(start + b"a" * 200_000)) == [400]


def test_100_continue_is_sent_only_if_the_body_is_not_too_large(running):
    head = b"POST /v1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    assert answered(running.ask(head % 10_001)) == [413]
    with running.connect() as connection:
        connection.sendall(head % 5)
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"abcde")
        assert connection.recv(1000).endswith(b"POST /v1 5")


# === time ===


def test_every_connection_ends(running):
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        connections = []
        for sent in (b"", b"\r\n" * 9, b"GET /v1", GET, CHUNKED + b"5\r\nab"):
            connections.append(stack.enter_context(running.connect()))
            connections[-1].sendall(sent)
        found = [answered(received(connection)) for connection in connections]
    assert found == [[], [], [], [200], [504]] and time.monotonic() - start < 20


def test_a_client_that_does_not_read_the_answer_is_closed():
    with Running(request_timeout=0.5, max_connections=2) as running:
        with running.connect() as connection:
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: running.server._connections)
            wait_until(lambda: not running.server._connections)
            assert len(received(connection)) < 50_000_000
        assert answered(running.ask(CHUNKED + b"0\r\n\r\n" + CLOSE)) == [200, 200]


def test_a_client_that_sends_no_more_is_answered(running):
    for sent, codes in ((GET + GET, [200, 200]), (GET + b"GET /v1", [200]), (CHUNKED, [])):
        with running.connect() as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert answered(received(connection)) == codes


def test_answers_that_are_not_read_are_bounded_together():
    large = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"  # 50 MB of 64
    with Running() as running, running.connect() as slow:
        slow.sendall(large)
        assert slow.recv(12) == b"HTTP/1.1 200"
        with running.connect() as other:
            other.sendall(large)
            assert answered(other.recv(1000)) == [503]
        assert running.seconds_of_get() < 5
        slow.close()
        wait_until(lambda: running.server.memory.num_held == 0)


def test_a_request_is_cancelled_when_its_client_goes(running):
    with running.connect() as connection:
        connection.sendall(GET.replace(b"/v1", b"/slow"))
        time.sleep(0.1)
    assert running.application.cancelled.wait(10)


# === hostile clients ===


def test_tiny_chunks_hold_up_nobody():
    with Running() as running, running.connect() as connection:
        sent = threading.Thread(target=send, args=(connection, CHUNKED + b"1\r\na\r\n" * 4_000_000))
        sent.start()
        for _ in range(5):
            assert running.seconds_of_get() < 5
        assert answered(received(connection)) in ([413], [])
        sent.join()


def send(connection, data):
    with contextlib.suppress(OSError):  # closed by the server
        connection.sendall(data)


def test_over_the_limit_the_status_is_answered_and_the_rest_refused():
    with Running(max_connections=3) as running, contextlib.ExitStack() as idle:
        for _ in range(NUM_SPARE + 100):
            idle.enter_context(running.connect())
        for _ in range(3):
            assert running.seconds_of_get() < 5
        found = running.ask(CHUNKED)
        assert answered(found) == [503] and b"at most 3 open connections" in found
        idle.close()
        wait_until(lambda: answered(running.ask(CHUNKED + b"0\r\n\r\n" + CLOSE)) == [200, 200])


def test_large_bodies_at_the_same_time_are_bounded_together():
    size = 300_000
    with Running(max_body_bytes=size, max_queued_bytes=size) as running:
        with running.connect() as connection:
            head = b"POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % size + b"a" * (size - 1))
            last = head.replace(b"Host", b"Connection: close\r\nHost")
            wait_until(lambda: running.server.memory.num_held == size - 1)
            assert answered(running.ask(last % size + b"a" * size)) == [503]
            assert answered(running.ask(last % 5 + b"abcde")) == [200]
            connection.sendall(b"a")
            assert answered(connection.recv(1000)) == [200]
        assert answered(running.ask(last % size + b"a" * size)) == [200]


def test_a_lack_of_descriptors_is_said_once_and_survived(caplog):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Running() as running, contextlib.ExitStack() as idle:
        clients = [socket.socket() for _ in range(40)]
        for client in clients:
            idle.enter_context(client)
        probes = [idle.enter_context(socket.socket()) for _ in range(3)]
        lowest = socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno() + 30, before[1]))
        lowest.close()
        try:
            for client in clients:
                client.connect(running.address)
            for probe in probes:
                start = time.monotonic()
                probe.connect(running.address)
                probe.settimeout(20)
                probe.sendall(CLOSE)
                assert b" 200 OK" in received(probe) and time.monotonic() - start < 20
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    errors = caplog.text
    assert errors.count("no connection can be accepted") == 1 and len(errors) < 1000, errors
