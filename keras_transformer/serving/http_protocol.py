"""HTTP as uvicorn and h11 have it, with bounds on what they leave open: time and connections."""

import json

import h11
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol


class BoundedHttp(H11Protocol):
    """A connection to a client.

    A request's headers have to come whole within `request_timeout` seconds, and its body within as
    many more, or the connection is closed. Where more connections are open than may be, requests
    are answered 503. h11 itself bounds the bytes of headers and trailers, to 16 KB.

    Args:
        settings: `ServingConfig`.
        others: what uvicorn gives.
    """

    def __init__(self, *others, settings, **named_others):
        super().__init__(*others, **named_others)
        self._settings = settings
        self._application = self.app
        self._awaited = None
        self._timer = None

    def connection_made(self, transport):
        super().connection_made(transport)
        self._watch("headers")

    def connection_lost(self, exc):
        self._watch(None)
        super().connection_lost(exc)

    def data_received(self, data):
        is_full = len(self.connections) > self._settings.max_rest_connections
        most = self._settings.max_connections
        self.app = _too_many(most) if is_full else self._application
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # no HTTP any more, and an answer has begun already
            self.transport.close()
        self._watch(self._expected())

    def on_response_complete(self):
        super().on_response_complete()
        self._watch(self._expected())  # the next request may have begun already

    def _expected(self):
        """Returns what the client has begun to send."""
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        has_begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        return "headers" if has_begun else None

    def _watch(self, awaited):
        """Closes the connection unless something else is awaited in time."""
        if awaited == self._awaited:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._awaited, self._timer = awaited, None
        if awaited is not None:
            seconds = self._settings.request_timeout
            if awaited == "body":
                seconds += 1  # who waits for it is answered 504 first
            self._timer = self.loop.call_later(seconds, self.transport.close)


def _too_many(most):
    """Returns the application that answers in place of the server's."""
    error = f"Expected at most {most} open connections. Received more. Try again later."
    headers = {"Connection": "close"}
    return Response(json.dumps({"error": error}), 503, headers, media_type="application/json")
