"""One client's HTTP connection: h11 parses the protocol, this file limits sizes and times.

A connection reads a request, has it answered, writes the answer, and reads the next request. A
client may send further requests before it has the answer (pipelining), up to a few bytes. Where
HTTP gives a choice, this server is strict: lines must end in CRLF and must not be folded, and a
connection ends after a request that two programs could read differently.
"""

import asyncio
import dataclasses
import email.utils
import enum
import http
import re

import h11

from keras_transformer.serving.errors import ServingError, invalid, late, too_large, unavailable
from keras_transformer.serving.memory import Share

HEAD_BYTES = 16 * 2**10  # maximum size of a request line with its headers
AHEAD_BYTES = 16 * 2**10  # maximum size of pipelined requests
EVENTS_AT_ONCE = 200  # h11 events that are read before other connections have their turn
BYTES_PER_CHUNK = 64  # minimum mean size of the chunks of a body, after the first FEW_CHUNKS
FEW_CHUNKS = 1000
LINGER_SECONDS = 2  # how long a connection stays open after its last answer
PROBE_SECONDS = 0.5  # how often a client that sends no more is asked whether it still reads
NOT_STRICT = re.compile(rb"(?<!\r)\n|\r\n[ \t]")  # a bare LF, or a folded line
REASONS = {status.value: status.phrase for status in http.HTTPStatus}
ORIGIN = re.compile(r"https?://[^/?#]*", re.IGNORECASE)  # scheme and host of an absolute URL


@dataclasses.dataclass
class Request:
    """A complete request.

    Attributes:
        method: str.
        path: str, without the query, and still percent-encoded.
        headers: dict from lower-case name to value, both str.
        body: bytes-like; the application sets it to None once it has read it.
        deadline: when the request must be answered.
        share: `Share` of the server's memory, which holds the body.
    """

    method: str
    path: str
    headers: dict
    body: bytes
    deadline: float
    share: Share


@dataclasses.dataclass(frozen=True)
class Response:
    """An answer: its status code, body, content type, and pairs of further headers."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple = ()


NOT_FOUND = Response(404, b"Not Found", "text/plain; charset=utf-8")


class Step(enum.Enum):
    """The state of a connection."""

    HEAD = enum.auto()  # waits for a request, or for the rest of its headers
    BODY = enum.auto()  # reads the body
    ANSWER = enum.auto()  # waits for the application
    WRITE = enum.auto()  # writes the answer
    END = enum.auto()  # discards whatever still arrives


class HttpConnection(asyncio.Protocol):
    """A connection to a client.

    Args:
        server: `HttpServer` that has accepted the connection.
    Attributes:
        has_slot: bool. Without a slot only GET requests are answered, one for each connection.
    """

    def __init__(self, server):
        self.has_slot = False
        self._server = server
        self._share = Share(server.memory)
        self._settings = server.settings
        self._loop = asyncio.get_running_loop()
        self._transport = None
        self._step = Step.HEAD
        self._ahead = bytearray()  # received bytes that belong to no request yet
        self._http = None
        self._event = None  # the `h11.Request`
        self._headers = {}  # those of `Request`
        self._body = bytearray()
        self._num_chunks = 0
        self._framing = b""  # the last bytes of a chunked body
        self._num_discarded = 0
        self._has_ended = False  # the client sends no more
        self._deadline = None
        self._timer = None
        self._answering = None

    # === called by the server ===

    @property
    def is_waiting(self):
        """Whether the connection waits for a request."""
        return self._step is Step.HEAD

    def abort(self):
        """Closes the connection at once."""
        self._server.leave(self)
        self._step = Step.END
        self._transport.abort()

    # === called by asyncio ===

    def connection_made(self, transport):
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # resume_writing then means all is written
        self._server.enter(self)
        self._begin(self._settings.request_timeout)

    def connection_lost(self, exc):
        self._step = Step.END
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()
        self._free_body()
        self._server.leave(self)

    def eof_received(self):
        self._has_ended = True
        if self._step is Step.ANSWER:
            self._loop.call_later(PROBE_SECONDS, self._probe)
        return self._step in (Step.ANSWER, Step.WRITE)  # whole requests are answered

    def data_received(self, data):
        if self._step is Step.BODY:
            self._receive(data)
            self._read()
        elif self._step is Step.END:
            self._num_discarded += len(data)
            if self._num_discarded > 4 * self._settings.max_body_bytes:
                self.abort()
        else:
            self._ahead += data
            if self._step is Step.HEAD:
                self._read()
            elif len(self._ahead) > AHEAD_BYTES:
                self._transport.pause_reading()

    def resume_writing(self):
        if self._step is Step.WRITE:
            self._written()

    # === a request ===

    def _begin(self, seconds):
        """Waits for a request, whose first byte must arrive within `seconds`."""
        self._step = Step.HEAD
        self._http = h11.Connection(h11.SERVER, HEAD_BYTES)
        self._num_chunks = 0
        self._deadline = None
        self._set_timer(seconds)
        self._read()  # a pipelined request may be here already
        if self._has_ended and self._step is Step.HEAD:
            self.abort()

    def _set_timer(self, seconds):
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._on_timeout)

    def _on_timeout(self):
        if self._step is not Step.BODY:
            self.abort()
            return
        seconds = self._settings.request_timeout
        message = f"Expected the whole request within {seconds:g} seconds. Received only a part."
        self._refuse(late(message))

    def _read(self):
        """Reads what has arrived of a request; refuses one that breaks a rule or a limit."""
        try:
            if self._step is Step.HEAD:
                self._read_head()
            if self._step is Step.BODY:  # not refused, and the client has not gone
                self._read_body()
        except ServingError as error:
            self._refuse(error)
        except h11.RemoteProtocolError as error:
            reason = str(error).partition(":")[0]  # the rest quotes the client's bytes
            self._refuse(invalid(f"Malformed request: {reason}", error.error_status_hint))

    def _read_head(self):
        """Parses the request line and the headers once they are complete."""
        self._ahead = self._ahead.lstrip(b"\r\n")
        if not self._ahead:
            return
        if self._deadline is None:
            self._deadline = self._loop.time() + self._settings.request_timeout
            self._set_timer(self._settings.request_timeout)
        head, separator, _ = self._ahead.partition(b"\r\n\r\n")
        if len(head) + len(separator) > HEAD_BYTES:
            raise invalid(f"Expected headers of at most {HEAD_BYTES} bytes. Received more.")
        if NOT_STRICT.search(head):
            raise invalid(
                "Expected header lines that end in CRLF and are not folded. Received others."
            )
        if separator:
            self._framing = b""
            self._receive(bytes(self._ahead))
            self._ahead = bytearray()
            self._step = Step.BODY
            self._event = self._http.next_event()
            self._headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in self._event.headers
            }
            self._check_head()

    def _check_head(self):
        """Checks the request line and headers before the body arrives."""
        is_chunked = "transfer-encoding" in self._headers
        length = 0 if is_chunked else int(self._headers.get("content-length", 0))
        self._server.take_slot(self)
        if not self._event.http_version.startswith(b"1."):
            version = self._event.http_version.decode()
            raise invalid(f"Expected HTTP version 1. Received: version {version}.", http_status=505)
        if not (self.has_slot or self._event.method == b"GET"):
            raise unavailable(
                f"Expected at most {self._settings.max_connections} open connections. "
                "Received more. Try again later."
            )
        if length > self._settings.max_body_bytes:
            raise too_large_body(self._settings.max_body_bytes)
        if self._event.method == b"POST" and (
            refusal := self._server.application.refusal_of_body(self._path())
        ):
            self._send(refusal, is_last=True)  # without waiting for a body
        elif self._http.they_are_waiting_for_100_continue:
            self._continue()

    def _path(self):
        target = ORIGIN.sub("", self._event.target.decode("ascii"), count=1)
        return target.partition("?")[0] or "/"

    def _receive(self, data):
        self._http.receive_data(data)
        self._framing = self._framing[-HEAD_BYTES:] + data

    def _read_body(self):
        """Reads the part of the body that has arrived, in turns with the other connections."""
        for _ in range(EVENTS_AT_ONCE):
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._transport.resume_reading()
                return
            if isinstance(event, h11.EndOfMessage):
                self._transport.resume_reading()
                self._check_trailers(event.headers)
                self._answer()
                return
            self._add_to_body(event.data)
        self._transport.pause_reading()
        self._loop.call_soon(self._read)

    def _add_to_body(self, data):
        self._body += data
        self._num_chunks += 1
        size, limit = len(self._body), self._settings.max_body_bytes
        if size > limit:
            raise too_large_body(limit)
        if self._num_chunks > FEW_CHUNKS + size // BYTES_PER_CHUNK:
            raise too_large(
                f"Expected chunks of at least {BYTES_PER_CHUNK} bytes. Received smaller ones."
            )
        self._share.hold(size)

    def _check_trailers(self, trailers):
        """Refuses a bare LF, or a folded line, between the last chunk and the end of a body.

        h11 accepts them, so a proxy could see another end, and another next request.
        """
        if "transfer-encoding" not in self._headers:
            return
        end = len(self._framing) - len(self._http.trailing_data[0])
        lines = self._framing[:end].split(b"\n")[-2 - len(trailers) : -1]
        if not all(line.endswith(b"\r") and line[:1] not in b" \t" for line in lines):
            raise invalid("Expected trailers that end in CRLF and are not folded. Received others.")

    def _free_body(self):
        self._body = bytearray()
        self._share.close()

    # === the answer ===

    def _answer(self):
        self._step = Step.ANSWER
        self._timer.cancel()  # the application keeps the deadline
        request = Request(
            self._event.method.decode("ascii"),
            self._path(),
            self._headers,
            self._body,
            self._deadline,
            self._share,
        )
        self._body = bytearray()
        self._ahead += self._http.trailing_data[0]
        self._answering = self._loop.create_task(self._server.application.answer(request))
        self._answering.add_done_callback(self._answered)

    def _answered(self, task):
        self._answering = None
        if self._step is not Step.ANSWER:  # the client has gone
            return
        if task.cancelled() or task.exception() is not None:
            self.abort()
            return
        response = task.result()
        try:
            self._share.hold(len(response.body))  # until the client has read it
        except ServingError as error:
            response = self._server.application.refuse(error)
        self._send(response)

    def _probe(self):
        """Writes to a client that sends no more: if it has gone, the next write fails.

        Any client skips a 100. Without it, a request would go on although nobody waits for it.
        """
        if self._step is Step.ANSWER and self._event.http_version == b"1.1":
            self._continue()
            self._loop.call_later(PROBE_SECONDS, self._probe)

    def _continue(self):
        event = h11.InformationalResponse(status_code=100, headers=[])
        self._transport.write(self._http.send(event))

    def _refuse(self, error):
        """Sends an error, and ends the connection."""
        self._send(self._server.application.refuse(error), is_last=True)

    def _send(self, response, is_last=False):
        headers = [
            ("Date", email.utils.formatdate(usegmt=True)),
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            *response.headers,
        ]
        # two headers give the length, as in request smuggling (RFC 9112, 6.1)
        is_ambiguous = {"transfer-encoding", "content-length"} <= self._headers.keys()
        if is_last or not self.has_slot or self._server.is_stopping or is_ambiguous:
            headers.append(("Connection", "close"))
        reason = REASONS.get(response.status, "")
        parts = [h11.Response(status_code=response.status, headers=headers, reason=reason)]
        if self._event is None or self._event.method != b"HEAD":
            parts.append(h11.Data(data=response.body))
        parts.append(h11.EndOfMessage())
        self._step = Step.WRITE
        self._set_timer(self._settings.request_timeout)
        self._transport.write(b"".join(self._http.send(part) for part in parts))
        if not self._transport.get_write_buffer_size():
            self._written()

    def _written(self):
        self._free_body()
        self._event, self._headers = None, {}
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._transport.resume_reading()
            self._begin(self._settings.idle_timeout)
        else:
            self._end()

    def _end(self):
        """Closes after a moment: a reset at once could reach the client before the answer."""
        self._step = Step.END
        if self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has reset the connection
            self.abort()
            return
        self._set_timer(0 if self._has_ended else LINGER_SECONDS)
        self._transport.resume_reading()


def too_large_body(limit):
    return too_large(f"Expected a body of at most {limit} bytes. Received more. Send fewer texts.")
