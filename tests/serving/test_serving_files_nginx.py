"""nginx.conf, run by nginx in front of a server that returns the requests it gets."""

import concurrent.futures
import gzip
import http.server
import json
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time

import grpc
import pytest
import requests
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

SERVING_FILES = pathlib.Path(__file__).parents[2] / "export"

PREDICT = "/v1/models/translator:predict"
USER = ("ann", "secret")


NGINX = shutil.which("nginx")
if NGINX is None or shutil.which("openssl") is None:
    pytest.skip("needs nginx and openssl", allow_module_level=True)


def knows_http2_on():
    version = subprocess.run([NGINX, "-v"], capture_output=True, text=True).stderr
    return tuple(map(int, re.search(r"/(\d+)\.(\d+)\.(\d+)", version).groups())) >= (1, 25, 1)


def for_older_nginx(text):
    """Returns the configuration changed for an older nginx, as its comment says."""
    assert "    listen 8443 ssl;\n    http2 on;\n" in text
    return text.replace("    listen 8443 ssl;\n    http2 on;\n", "    listen 8443 ssl http2;\n")


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A directory with certificate.pem and key.pem for localhost."""
    directory = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command += " -keyout key.pem -out certificate.pem -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost"
    subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def start_nginx(tls, tmp_path_factory):
    """A function that starts nginx with a changed nginx.conf; returns its address.

    The addresses of the servers behind it, the paths and the port are always changed.
    """
    started = []

    def start(rest="127.0.0.1:9", rpc="127.0.0.1:9", **changes):
        prefix = tmp_path_factory.mktemp("nginx")
        (prefix / "users").write_text(f"{USER[0]}:{{PLAIN}}{USER[1]}\n")
        port = free_port()
        text = (SERVING_FILES / "nginx.conf").read_text()
        if not knows_http2_on():
            text = for_older_nginx(text)
        places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        # each replaced text must exist
        for old, new in {
            "/etc/nginx/tls": str(tls),
            "/etc/nginx/users": str(prefix / "users"),
            "listen 8443": f"listen 127.0.0.1:{port}",
            "127.0.0.1:8501": rest,
            "127.0.0.1:8500": rpc,
            "http {": "http {\naccess_log off;\n"
            + "".join(f"{place}_temp_path {prefix}/{place};\n" for place in places),
            **changes,
        }.items():
            assert old in text
            text = text.replace(old, new)
        (prefix / "nginx.conf").write_text(text)
        # workers of a root master would run as a user who cannot read the files
        globally = f"daemon off; master_process off; pid {prefix}/pid;"
        command = [NGINX, "-p", prefix, "-c", prefix / "nginx.conf", "-e", "stderr", "-g", globally]
        process = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE)
        started.append(process)
        for _ in range(1000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return f"localhost:{port}"
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.01)
        raise AssertionError("nginx does not listen")

    yield start
    for process in started:
        process.terminate()
        process.wait(30)
        process.stderr.close()


class Behind(http.server.BaseHTTPRequestHandler):
    """Answers with the path, the headers and the body of a request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        said = {"path": self.path, "headers": dict(self.headers), "body": body.decode()}
        said["predictions"] = [{"translation": "Ein Hund."}]
        answer = json.dumps(said).encode()
        self.send_response(503 if b"full" in body else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def behind():
    """The address of a `Behind`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Behind) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


class BehindByGrpc(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers a call if it has no password."""

    def Predict(self, request, context):
        assert "authorization" not in dict(context.invocation_metadata())
        response = predict_pb2.PredictResponse()
        response.outputs["translation"].string_val.append(b"Ein Hund.")
        response.outputs["score"].float_val.append(-0.5)
        response.outputs["truncated"].bool_val.append(False)
        return response


@pytest.fixture(scope="module")
def behind_by_grpc():
    """The address of a `BehindByGrpc`."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(BehindByGrpc(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


@pytest.fixture(scope="module")
def proxy(start_nginx, behind, behind_by_grpc):
    """The address of nginx in front of a `Behind` and a `BehindByGrpc`."""
    return start_nginx(rest=behind, rpc=behind_by_grpc)


@pytest.fixture
def send(tls):
    """A function that sends a request to a path without normalizing it; returns the response."""
    with requests.Session() as session:
        session.verify = str(tls / "certificate.pem")
        session.auth = USER

        def send(address, path=PREDICT, data=b"{}", method="POST", **arguments):
            request = requests.Request(method, f"https://{address}/", data=data, **arguments)
            prepared = session.prepare_request(request)
            prepared.url = f"https://{address}{path}"
            return session.send(prepared, timeout=30, verify=session.verify)

        yield send


@pytest.mark.parametrize("path", [PREDICT, "/v1/models/translator/labels/stable:predict"])
def test_predictions_pass_without_the_password(send, proxy, path):
    response = send(proxy, path)
    assert response.status_code == 200 and response.json()["path"] == path
    assert "Authorization" not in response.json()["headers"]


@pytest.mark.parametrize("path", [
    "/v1/models/translator", "/v1/models/translator/metadata", "/monitoring/prometheus/metrics",
    "/v1/models/translator:predict/", "/v1/models/translator:predict%0A", f"{PREDICT}?a=b",
    "/v1/models/translator/versions/1:predict", "/v1/models/translator:classify",
    "/v1/models/x/../translator:predict", "//v1/models/translator:predict",
    "/monitoring/prometheus/metrics%3F/../../../v1/models/translator:predict",
    "/tensorflow.serving.PredictionService/PredictX",
    "/tensorflow.serving.PredictionService/Predict/x",
    "/tensorflow.serving.PredictionService/GetModelMetadata",
    "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
    "/tensorflow.serving.ModelService/../tensorflow.serving.PredictionService/Predict",
])  # fmt: skip
def test_no_other_path_passes(send, proxy, path):
    assert send(proxy, path).status_code == 404


def test_only_users_pass_and_only_by_post(send, proxy):
    assert send(proxy, auth=("ann", "wrong")).status_code == 401
    assert send(proxy, method="GET").status_code == 403
    assert send(proxy, data=b" " * (4 * 2**20 + 1)).status_code == 413


def test_gzip_passes(send, proxy):
    body = b'{"instances": ["A dog runs."]}'
    response = send(proxy, data=gzip.compress(body), headers={"Content-Encoding": "gzip"})
    assert response.status_code == 200 and response.json()["body"] == body.decode()


def test_too_many_requests_are_not_a_full_queue(send, start_nginx, behind):
    slow = start_nginx(rest=behind, **{"rate=50r/s": "rate=1r/m", "burst=100": "burst=2"})
    assert [send(slow, data=b"full").status_code for _ in range(2)] == [503, 503]
    send(slow)
    response = send(slow, data=b"full")
    assert response.status_code == 429 and response.headers["Retry-After"] == "1"
    assert "fewer requests" in response.json()["error"]


@pytest.fixture
def run(run_program, tls, monkeypatch):
    """A function that runs a client for a user; returns its output, or its error message."""

    def run(name, *flags, password=USER[1]):
        monkeypatch.setenv("TRANSLATOR_PASSWORD", password)
        to_proxy = ["--user", USER[0], "--ca-file", tls / "certificate.pem"]
        return run_program(name, "A dog.", *to_proxy, *flags)

    return run


def test_both_clients_pass(run, proxy):
    url = ["--url", f"https://{proxy}/v1/models/translator"]
    assert run("client_rest", *url) == "Ein Hund.\n"
    assert "401: Unauthorized" in run("client_rest", *url, password="wrong")
    address = ["--address", proxy, "--tls"]
    assert run("client_grpc", *address) == "Ein Hund.\n"
    assert "UNAUTHENTICATED" in run("client_grpc", *address, password="wrong")


def test_clients_send_no_password_without_tls(run, proxy):
    assert run("client_grpc", "--address", proxy) == "2"  # an error in the arguments
    assert run("client_rest", "--url", f"http://{proxy}/v1/models/translator") == "2"
