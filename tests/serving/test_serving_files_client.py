"""client_rest.py with a busy server, and with a proxy that answers instead of the server."""

import email.utils
import http.server
import pathlib
import threading
import time

import pytest

SERVING_FILES = pathlib.Path(__file__).parents[2] / "export"

PREDICTIONS = (200, {}, b'{"predictions": [{"translation": "Ein Hund."}]}')
FULL = (503, {}, b'{"error": "the queue is full"}')


@pytest.fixture
def client(program, monkeypatch):
    """client_rest.py; `client.pauses` lists the seconds that it has waited."""
    client = program("client_rest")
    client.pauses = []
    monkeypatch.setattr("time.sleep", client.pauses.append)
    return client


@pytest.fixture
def answer():
    """A function that starts a server with given answers; returns it and the URL of a model."""
    servers = []

    def answer(*answers):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, body = answers[min(server.num_requests, len(answers) - 1)]
                server.num_requests += 1
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        server.num_requests = 0
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server, f"http://127.0.0.1:{server.server_port}/v1/models/translator"

    yield answer
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [429, 503, 504])
def test_a_busy_server_is_asked_again_after_pauses_that_double(client, answer, status):
    busy = (status, {}, b"")
    server, url = answer(busy, busy, busy, PREDICTIONS)
    assert client.translate(url, ["A dog."]) == [{"translation": "Ein Hund."}]
    assert server.num_requests == 4
    for pause, least in zip(client.pauses, [0.5, 1, 2], strict=True):
        assert least <= pause <= 2 * least


def test_a_server_that_stays_busy_is_asked_a_few_times(client, answer):
    server, url = answer(FULL)
    with pytest.raises(RuntimeError, match="^503: the queue is full$"):
        client.translate(url, ["A dog."])
    assert server.num_requests == 5


def test_retry_after_is_honoured(client, answer):
    soon = email.utils.formatdate(time.time() + 20, usegmt=True)
    answers = [(429, {"Retry-After": after}, b"") for after in ("3", soon)]
    server, url = answer(*answers, PREDICTIONS)
    client.translate(url, ["A dog."])
    assert client.pauses[0] == 3 and 10 < client.pauses[1] <= 20
    server, url = answer((503, {"Retry-After": "3600"}, b""))
    with pytest.raises(RuntimeError, match="^503"):
        client.translate(url, ["A dog."])
    assert server.num_requests == 1


@pytest.mark.parametrize("answered, said", [
    ((502, {"Content-Type": "text/html"}, b"<html>Bad Gateway</html>"), "502: Bad Gateway"),
    ((200, {"Content-Type": "text/html"}, b"<html>Welcome</html>"), "200: OK .a body of text/html"),
    ((400, {}, b'["error"]'), "400: Bad Request"),
    ((404, {}, b'{"error": "Servable not found"}'), "404: Servable not found"),
])  # fmt: skip
def test_other_answers_are_said_with_their_status(client, answer, answered, said):
    server, url = answer(answered)
    with pytest.raises(RuntimeError, match=f"^{said}"):
        client.translate(url, ["A dog."])
    assert server.num_requests == 1 and not client.pauses


def test_a_server_that_is_not_there_is_said(client, monkeypatch):
    monkeypatch.setattr("sys.argv", ["", "A dog.", "--url", "http://127.0.0.1:9/v1/models/m"])
    with pytest.raises(SystemExit, match="client_rest.py: .*refused"):
        client.main()
