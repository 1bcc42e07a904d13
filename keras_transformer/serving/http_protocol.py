"""HTTP as uvicorn has it, with bounds on what it leaves open: headers, their time, connections."""

import json

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADER_BYTES = 2**16


class BoundedHttp(HttpToolsProtocol):
    """A connection to a client.

    Its requests' headers have to come whole within `request_timeout` seconds and to be no larger
    than 64 KB (a chunk more may be read). Where more connections are open than may be, its
    requests are answered 503.

    Args:
        settings: `ServingConfig`.
        others: what uvicorn gives.
    """

    def __init__(self, *others, settings, **named_others):
        super().__init__(*others, **named_others)
        self._settings = settings
        self._application = self.app
        self._num_header_bytes = 0
        self._headers_timer = None

    def connection_made(self, transport):
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc):
        self._headers_have_come()
        super().connection_lost(exc)

    def data_received(self, data):
        super().data_received(data)
        if self._headers_timer is None:
            return
        self._num_header_bytes += len(data)
        if self._num_header_bytes > MOST_HEADER_BYTES:
            self._headers_have_come()
            self.send_400_response(f"Expected headers of at most {MOST_HEADER_BYTES} bytes.")

    def on_message_begin(self):
        super().on_message_begin()
        self._await_headers()

    def on_headers_complete(self):
        self._headers_have_come()
        most = self._settings.max_connections
        self.app = _too_many(most) if len(self.connections) > most else self._application
        super().on_headers_complete()

    def _await_headers(self):
        self._headers_have_come()
        timeout = self._settings.request_timeout
        self._headers_timer = self.loop.call_later(timeout, self.transport.close)

    def _headers_have_come(self):
        self._num_header_bytes = 0
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None


def _too_many(most):
    """Returns the application that answers in place of the server's."""
    error = f"Expected at most {most} open connections. Received more. Try again later."
    headers = {"Connection": "close"}
    return Response(json.dumps({"error": error}), 503, headers, media_type="application/json")
