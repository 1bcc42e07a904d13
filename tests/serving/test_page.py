"""The paths of the page for browsers, without a browser: headers, methods, and hostile clients."""

import http.client
import re
import socket

import pytest
import requests

from keras_transformer.serving.page import DIRECTORY, FILES, MODEL

PATHS = (*FILES, MODEL)


@pytest.fixture(scope="module")
def get(echo_server):
    """A function that asks for a path as it is written, by a method; returns the response."""

    def get(path, method="GET", **arguments):
        request = requests.Request(method, echo_server.base, **arguments).prepare()
        request.url = echo_server.base + path  # requests would remove dots
        with requests.Session() as session:
            return session.send(request, timeout=60)

    return get


@pytest.mark.parametrize("path", PATHS)
def test_a_page_can_load_nothing_from_elsewhere_and_is_not_kept(get, path):
    response = get(path)
    assert response.status_code == 200
    policy = dict(
        directive.strip().split(" ", 1)
        for directive in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy.pop("default-src") == policy.pop("base-uri") == "'none'"
    assert policy.pop("form-action") == policy.pop("frame-ancestors") == "'none'"
    assert {policy.pop(f"{kind}-src") for kind in ("script", "style", "connect")} == {"'self'"}
    assert policy == {"require-trusted-types-for": "'script'", "trusted-types": "'none'"}
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_sent_with_its_type(get, path):
    response = get(path)
    name, content_type = FILES[path]
    assert response.headers["Content-Type"] == content_type
    assert response.content == (DIRECTORY / name).read_bytes()


def test_the_page_learns_the_model_and_its_versions(get, echo_server):
    found = get(MODEL).json()
    assert found["model"] == echo_server.name
    assert found["versions"] == [{"version": "1", "labels": [], "card": {}}]


@pytest.mark.parametrize("path", PATHS)
def test_head_has_the_headers_of_get_and_no_body(get, path):
    head, whole = get(path, "HEAD"), get(path)
    assert head.status_code == 200 and head.content == b""
    assert {**head.headers, "Date": None} == {**whole.headers, "Date": None}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/", MODEL])
def test_other_methods_are_not_allowed(get, path, method):
    response = get(path, method, data=b"x")
    assert response.status_code == 405 and response.headers["Allow"] == "GET, HEAD"


def test_a_body_for_the_page_is_refused_before_it_arrives(echo_server):
    address = echo_server.base.rpartition("/")[2].split(":")
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 405 and response.headers["Connection"] == "close"


@pytest.mark.parametrize(
    "path",
    ["/index.html", "/page.py", "/web/page.js", "/./page.js", "/../page.py", "/%2e%2e/page.py"]
    + ["//page.js", "/page.js%00", "/PAGE.JS", "/page.css/", "/favicon.ico", "/v1/page.js"],
)
def test_other_paths_are_not_of_the_page(get, path):
    assert get(path).status_code == (400 if path.startswith("/v1/") else 404)


def test_a_query_changes_nothing(get):
    assert get("/?<script>alert(1)</script>").content == get("/").content


def test_a_server_without_the_page_has_none_of_its_paths(start_echo_server):
    server = start_echo_server(has_page=False)
    assert [requests.get(server.base + path).status_code for path in PATHS] == [404] * 4
    assert requests.post(server.base, data=b"x").status_code == 404


def test_the_files_name_no_address_and_make_no_markup_from_text():
    for name, _ in FILES.values():
        content = (DIRECTORY / name).read_text("utf-8")
        assert not re.search(r"https?:|//[a-z]|@import|url\(|data:", content)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", content)
        assert not re.search(r"localStorage|sessionStorage|indexedDB|cookie", content)
        assert not re.search(r"style=|\son[a-z]+=\"", content)
