"""TensorFlow Serving's REST and gRPC interface; `conftest.py` says how to test any server."""

import base64
import gzip
import json
import random
import re
import socket
import string
import urllib.parse

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.serving import random_requests

TEXTS = ["A dog runs.", "", "The woman in the green coat is waiting for the bus.", "мир \U0001f44d"]


def predict(channel, server, name="serving_default", model=None, filter=(), **inputs):
    """Returns the `PredictResponse`."""
    request = predict_pb2.PredictRequest(output_filter=filter)
    request.model_spec.name = server.name if model is None else model
    request.model_spec.signature_name = name
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)


def status_of(call, *arguments, **keywords):
    """Returns the code and the details of a call that fails."""
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments, **keywords)
    return raised.value.code(), raised.value.details()


def error_of(response, code):
    """Returns the error message; the body must hold nothing else."""
    assert response.status_code == code, response.text
    assert response.headers["Content-Type"].startswith("application/json")
    document = response.json()
    assert list(document) == ["error"]
    return document["error"]


# === predict ===


def test_rows_columns_and_grpc_give_the_same_answers(post, channel, server):
    rows = post({"instances": TEXTS}).json()["predictions"]
    assert [sorted(row) for row in rows] == [["score", "translation", "truncated"]] * len(TEXTS)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    assert post({"instances": [{"text": text} for text in TEXTS]}).json()["predictions"] == rows
    assert post({"inputs": TEXTS}).json() == {"outputs": columns}
    assert post({"inputs": {"text": TEXTS}}).json() == {"outputs": columns}
    outputs = predict(channel, server, text=TEXTS).outputs
    translations = [text.decode() for text in outputs["translation"].string_val]
    assert translations == columns["translation"]
    np.testing.assert_array_equal(
        np.float32(columns["score"]), np.float32(outputs["score"].float_val)
    )
    assert list(outputs["truncated"].bool_val) == columns["truncated"]
    assert translations[1] == "" and columns["score"][1] == 0.0 and all(translations[::2])


def test_answers_do_not_depend_on_the_other_rows(post):
    together = post({"instances": TEXTS}).json()["predictions"]
    for text, expected in zip(TEXTS, together, strict=True):
        (alone,) = post({"instances": [text]}).json()["predictions"]
        assert alone["translation"] == expected["translation"]
        assert abs(alone["score"] - expected["score"]) < 1e-4


def test_one_output_comes_bare_and_several_by_name(post):
    body = {"signature_name": "encode", "instances": [{"text": "A dog runs."}] * 2}
    first, second = post(body).json()["predictions"]
    assert first == second and first[-1] == 3 and all(isinstance(i, int) for i in first)
    outputs = post({"signature_name": "encode", "inputs": ["A dog runs."]}).json()["outputs"]
    assert outputs == [first]
    decoded = post({"signature_name": "decode", "inputs": {"ids": outputs}}).json()["outputs"]
    assert decoded == ["A dog runs."]
    (row,) = post({"signature_name": "n_best", "instances": ["A dog runs."]}).json()["predictions"]
    assert sorted(row) == ["scores", "translations", "truncated"]
    assert len(row["translations"]) == len(row["scores"])


def test_a_signature_of_two_inputs(post, channel, server):
    pairs = {"text": ["A dog runs.", "A cat sleeps."], "target": ["Ein Hund läuft.", "Eine Katze."]}
    columns = post({"signature_name": "score", "inputs": pairs}).json()["outputs"]
    rows = [{"text": t, "target": g} for t, g in zip(*pairs.values(), strict=True)]
    assert post({"signature_name": "score", "instances": rows}).json()["predictions"] == columns
    scores = predict(channel, server, "score", **pairs).outputs["score"].float_val
    np.testing.assert_array_equal(np.float32(columns), np.float32(scores))
    error = error_of(post({"signature_name": "score", "instances": ["A dog runs."]}), 400)
    assert error.startswith("instances is a plain list, but expecting list of objects")
    error = error_of(post({"signature_name": "score", "inputs": ["A dog runs."]}), 400)
    assert error.startswith("inputs is a plain value/list, but expecting an object")
    short = {**pairs, "target": ["Ein Hund."]}
    error = error_of(post({"signature_name": "score", "inputs": short}), 400)
    # the graph's message; a batching session has another one, as in the two cases below
    assert "Expected a target for each text" in error or "equal 0th-dimension size" in error


def test_base64_in_place_of_several_inputs_is_refused(post):
    body = {"signature_name": "score", "instances": [{"b64": "YQ=="}]}
    assert error_of(post(body), 400).startswith("instances is a plain list")


def test_no_rows_are_answered_by_no_rows(post, channel, server):
    expected = {"translation": [], "score": [], "truncated": []}
    assert post({"inputs": []}).json() == {"outputs": expected}
    empty = tf.constant([], tf.string)
    outputs = predict(channel, server, text=empty).outputs
    assert {key: tf.make_ndarray(proto).shape for key, proto in outputs.items()} == {
        key: (0,) for key in expected
    }


def test_strings_in_base64_may_be_any_bytes(post):
    encoded = base64.b64encode(b"A dog runs.").decode()
    (row,) = post({"instances": [{"b64": encoded}]}).json()["predictions"]
    assert row == post({"instances": ["A dog runs."]}).json()["predictions"][0]
    assert post({"instances": [{"text": {"b64": encoded}}]}).json()["predictions"] == [row]
    no_utf8 = base64.b64encode(b"A dog \xff runs.").decode()
    response = post({"inputs": {"text": [{"b64": no_utf8}]}})
    assert response.status_code == 200 and response.content.decode("utf-8")


def test_too_long_a_text_is_cut_and_flagged(post):
    rows = post({"instances": ["A dog runs. " * 400, "A dog runs."]}).json()["predictions"]
    assert [row["truncated"] for row in rows] == [True, False]


def test_grpc_filters_outputs(channel, server):
    response = predict(channel, server, text=["A dog runs."], filter=["score"])
    assert list(response.outputs) == ["score"]
    assert response.model_spec.name == server.name and response.model_spec.version.value >= 1
    assert response.model_spec.signature_name == "serving_default"
    code, details = status_of(predict, channel, server, text=["A"], filter=["scores"])
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("output tensor alias not found in signature: scores")


# === errors ===


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON Parse error: "),
        (b"{", "JSON Parse error: "),
        (b'{"instances": ["a"] x}', "JSON Parse error: "),
        (b'{"instances": ["a"],}', "JSON Parse error: "),
        (b'{"instances" ["a"]}', "JSON Parse error: "),
        (b'{instances: ["a"]}', "JSON Parse error: "),
        (b'{"instances": ["a"], "other": x}', "JSON Parse error: "),
        (b'{"instances": ["\\ud800"]}', "JSON Parse error: "),
        (b"[]", "Is not object"),
        (b"{}", "Missing 'inputs' or 'instances' key"),
        (b'{"instances": []}', "No values in 'instances' array"),
        (b'{"instances": "a"}', "Excepting 'instances' to be an list/array"),
        (b'{"instances": ["a"], "inputs": ["a"]}', "expecting only one of 'inputs' or 'instances'"),
        (b'{"instances": [1]}', "Type: Number is not of expected type: string"),
        (b'{"instances": [null]}', "Type: Null is not of expected type: string"),
        (b'{"instances": [true]}', "Type: True is not of expected type: string"),
        (b'{"inputs": [1.5]}', "Type: Number is not of expected type: string"),
        (b'{"instances": [{"txt": "a"}]}', "does not have named input: txt"),
        (b'{"instances": [{}]}', "keys must be equal to: text"),
        (b'{"instances": ["a", {"text": "a"}]}', "Expecting value/list but got object at item 1"),
        (b'{"instances": [{"text": "a"}, "a"]}', "Expecting object but got list at item 1"),
        (b'{"instances": ["a", ["b"]]}', "Expecting "),
        (b'{"inputs": {"txt": ["a"]}}', "Missing named input: text in 'inputs' object."),
        (b'{"inputs": ["a", ["b"]]}', "Encountered list at unexpected level: 1 expected < 1"),
        (b'{"inputs": [["a", "b"], ["c"]]}', "Encountered list at unexpected size: 1 at level: 1"),
        (b'{"inputs": [["a"], "b"]}', "found at incorrect level: 2"),
        (b'{"inputs": [["a"]]}', "is not compatible with expected shape [?]."),
        (b'{"instances": [{"b64": "???"}]}', "Unable to base64 decode"),
        (b'{"instances": [{"b64": "YQ="}]}', "Unable to base64 decode"),
        (b'{"signature_name": 5, "instances": ["a"]}', "'signature_name' key must be a string"),
        (b'{"signature_name": null, "instances": ["a"]}', "'signature_name' key must be a string"),
        (
            b'{"signature_name": "x", "instances": ["a"]}',
            'Serving signature name: "x" not found in signature def',
        ),
    ],
)
def test_bad_bodies(post, body, message):
    assert message in error_of(post(body), 400)


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": ["A dog runs."]} text after the document',
        b'{"instances": ["A dog runs."]}]]}}',
        b'{"instances": ["A dog runs."], "instances": 5, "signature_name": "", "x": [{"y": NaN}]}',
        b'{"signature_name": "serving_default", "signature_name": 5, "instances": ["A dog runs."]}',
        b'{"instances": [{"b64": "QSBkb2cgcnVucy4"}]}',  # without padding
        b' \r\n\t{ "inst\\u0061nces" :\n[ "A dog runs." ] } ',
    ],
)
def test_unusual_bodies_are_accepted(post, body):
    expected = post({"instances": ["A dog runs."]}).json()
    assert post(body).json() == expected


def test_the_first_of_two_inputs_of_one_name_counts(post):
    expected = post({"inputs": {"text": ["A dog runs."]}}).json()
    assert post(b'{"inputs": {"text": ["A dog runs."], "text": 5}}').json() == expected


def test_encodings_of_a_body(post):
    body = json.dumps({"instances": ["A dog runs."]}).encode()
    expected = post(body).json()
    for name in ("gzip", "x-gzip"):
        headers = {"Content-Encoding": name}
        assert post(gzip.compress(body), headers=headers).json() == expected
    for name in (
        "deflate",
        "identity",
        "br",
    ):  # unknown to TensorFlow Serving, so the body is read as it is
        assert post(body, headers={"Content-Encoding": name}).json() == expected


def test_a_cors_preflight_is_answered(server):
    answer = requests.options(f"{server.rest}:predict", headers={"Origin": "https://a.b"})
    assert answer.status_code == 200 and not answer.content
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert error_of(requests.options(f"{server.rest}:predict"), 400).startswith("Origin header")


def test_a_text_outside_a_list(post):
    error = error_of(post(b'{"inputs": "a"}'), 400)
    assert "is not compatible with expected shape [?]" in error or "one dimension" in error


def test_unknown_models_versions_and_labels(post, server):
    body = {"instances": ["a"]}
    error = error_of(post(body, "/versions/777:predict"), 404)
    assert error == f"Servable not found for request: Specific({server.name}, 777)"
    response = requests.post(f"{server.rest}x:predict", json=body)
    assert error_of(response, 404) == f"Servable not found for request: Latest({server.name}x)"
    error = error_of(post(body, f"/versions/{'9' * 5000}:predict"), 400)
    assert error.startswith("Failed to convert version: 999")
    error = error_of(post(body, "/labels/none:predict"), 400)
    assert error == "Unrecognized servable version label: none"
    error = error_of(requests.get(f"{server.rest}x"), 404)
    assert error == f"Could not find any versions of model {server.name}x"
    error = error_of(requests.get(f"{server.rest}/versions/777"), 404)
    assert error == f"Could not find version 777 of model {server.name}"
    error = error_of(requests.get(f"{server.rest}/versions/777/metadata"), 404)
    assert error == f"Servable not found for request: Specific({server.name}, 777)"


def test_malformed_requests(post, server):
    base = server.rest.partition("/v1/")[0]
    path = f"/v1/models/{server.name}"
    for method, wrong in [("GET", f"{path}:predict"), ("POST", path), ("PUT", f"{path}:predict")]:
        response = requests.request(method, base + wrong, data="{}")
        assert error_of(response, 400) == f"Malformed request: {method} {wrong}"
    error = error_of(requests.get(f"{base}{path}%0Ax"), 404)
    assert error == f"Could not find any versions of model {server.name}\nx"
    error = error_of(requests.get(f"{base}/v1/models"), 400)
    assert error == "Missing model name in request."
    for outside in ("/", "/v2/models/x", "/v1"):
        assert requests.get(base + outside).status_code == 404


def test_paths_have_no_case(post, server):
    base = server.rest.partition("/v1/")[0]
    url = f"{base}/V1/Models/{server.name}:Predict"
    assert requests.post(url, json={"instances": ["a"]}).status_code == 200


def test_errors_by_grpc(channel, server):
    code, details = status_of(predict, channel, server, "x", text=["a"])
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert details == 'Serving signature key "x" not found.'
    code, details = status_of(predict, channel, server, model="none", text=["a"])
    assert code == grpc.StatusCode.NOT_FOUND
    assert details == "Servable not found for request: Latest(none)"
    for inputs, message in [
        ({}, "input size does not match signature: 0!=1"),
        ({"text": ["a"], "more": ["b"]}, "Sent extra: {more}"),
        ({"txt": ["a"]}, "input tensor alias not found in signature: txt"),
        ({"text": [1]}, ""),
        ({"text": "a"}, ""),
        ({"text": [["a"]]}, "is not compatible with expected shape [?]."),
    ]:
        code, details = status_of(predict, channel, server, **inputs)
        assert code == grpc.StatusCode.INVALID_ARGUMENT, (inputs, code, details)
        assert message in details


# === status and metadata ===


def test_status(channel, server):
    document = requests.get(server.rest).json()
    assert list(document) == ["model_version_status"]
    available = [v for v in document["model_version_status"] if v["state"] == "AVAILABLE"]
    assert available and all(
        v["status"] == {"error_code": "OK", "error_message": ""} for v in available
    )
    version = available[-1]["version"]
    assert isinstance(version, str)
    one = requests.get(f"{server.rest}/versions/{version}").json()
    assert one == {"model_version_status": [available[-1]]}
    request = get_model_status_pb2.GetModelStatusRequest()
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    assert status_of(stub.GetModelStatus, request)[0] == grpc.StatusCode.INVALID_ARGUMENT
    request.model_spec.name = server.name
    states = stub.GetModelStatus(request).model_version_status
    assert [str(s.version) for s in states if s.state == 30] == [v["version"] for v in available]
    request.model_spec.name = "none"
    code, details = status_of(stub.GetModelStatus, request)
    assert code == grpc.StatusCode.NOT_FOUND
    assert details == "Could not find any versions of model none"


def test_metadata(channel, server):
    document = requests.get(f"{server.rest}/metadata").json()
    assert document["model_spec"]["name"] == server.name
    assert isinstance(document["model_spec"]["version"], str)
    signatures = document["metadata"]["signature_def"]["signature_def"]
    text = signatures["serving_default"]["inputs"]["text"]
    assert text["dtype"] == "DT_STRING"
    assert [dim["size"] for dim in text["tensor_shape"]["dim"]] == ["-1"]
    assert signatures["serving_default"]["method_name"] == "tensorflow/serving/predict"
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = server.name
    assert status_of(stub.GetModelMetadata, request)[0] == grpc.StatusCode.INVALID_ARGUMENT
    request.metadata_field.append("signature_def")
    response = stub.GetModelMetadata(request)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found)
    assert set(found.signature_def) == set(signatures)
    assert json.dumps(sorted(found.signature_def["serving_default"].outputs)) == json.dumps(
        sorted(signatures["serving_default"]["outputs"])
    )


# === random bad requests: the server answers each, stays up, and leaks no memory ===


NUM_REQUESTS = 150
NUM_RAW = 80
GROWTH = 3 * 2**20  # bytes in a round; a leak of 20 KB per request would reach it


@pytest.fixture(scope="module")
def own_server(server):
    if not hasattr(server, "process"):
        pytest.skip("not at somebody else's server")
    return server


def resident(process):
    """Returns the resident memory of a process in bytes."""
    with open(f"/proc/{process.pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS")]
    return 1024 * int(line.split()[1])


def test_every_request_is_answered(own_server, post):
    codes, growth = {}, None
    for number in range(5):  # a leak grows in every round, what is loaded or freed late does not
        before = resident(own_server.process)
        draw = random.Random(1)
        for _ in range(NUM_REQUESTS):
            others = ["/versions/1:predict", "/labels/a:predict", "x", ""]
            response = post(random_requests.body(draw), draw.choice([":predict"] * 8 + others))
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


def test_every_message_is_answered(own_server):
    draw = random.Random(4)
    codes = {}
    with grpc.insecure_channel(own_server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for _ in range(NUM_REQUESTS):
            try:
                stub.Predict(random_requests.message(draw, own_server.name), timeout=30)
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


# === the log ===


def test_no_library_says_a_word(server):
    """Also not about the requests of all tests above, which it has refused."""
    if not hasattr(server, "lines"):
        pytest.skip("the log of somebody else's server is not known")
    waits = re.compile(
        "keras-transformer: (starting the server|loading the model)(, [0-9]+ s so far)?$"
    )
    lines = [line for line in server.lines if not waits.match(line.rstrip())]
    assert len(lines) == 3
    for line in lines:
        assert re.match("keras-transformer: (loading version|serving)", line), line
