"""The REST interface, with the paths, bodies and errors of TensorFlow Serving."""

import asyncio
import gzip
import io
import json
import re
import time
import urllib.parse
import weakref
import zlib

import grpc
from google.protobuf import json_format

from keras_transformer.files.version_numbers import version_number
from keras_transformer.serving import errors, json_tensors, protos
from keras_transformer.serving.batching import num_bytes
from keras_transformer.serving.http_connection import NOT_FOUND, Response, too_large_body
from keras_transformer.serving.loaded_model import DEFAULT_SIGNATURE

VERSION_OR_LABEL = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
PREDICT = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){VERSION_OR_LABEL}:(?P<method>predict|classify|regress)",
    re.IGNORECASE,
)
STATUS = re.compile(
    rf"/v1/models(?:/(?P<model>[^/:]+))?{VERSION_OR_LABEL}(?:/(?P<metadata>metadata))?",
    re.IGNORECASE,
)
METRICS_PATH = "/monitoring/prometheus/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RestInterface:
    """Answers the requests of an `HttpServer`.

    Args:
        page: `Page`, or None for a server without one.
    """

    def __init__(self, versions, batching, settings, metrics, one_thread, page=None):
        self._versions = versions
        self._batching = batching
        self._settings = settings
        self._metrics = metrics
        self._metadata = weakref.WeakKeyDictionary()  # `Version` to bytes
        self._loop = asyncio.get_running_loop()
        self._one_thread = one_thread
        self._page = page

    async def answer(self, request):
        """Returns the `Response` to a `Request`."""
        if request.path == METRICS_PATH and request.method == "GET":
            return Response(200, self._metrics.page(), METRICS_TYPE)
        if not is_rest(request.path):
            return (self._page and self._page.answer(request.method, request.path)) or NOT_FOUND
        start = time.perf_counter()
        api, status = "Predict", "CANCELLED"  # until another status is known
        try:
            if request.method == "POST" and (match := PREDICT.fullmatch(request.path)):
                allowed = self._settings.request_timeout
                left = request.deadline - self._loop.time()
                body = await errors.in_time(self._predict(request, match), left, allowed)
            elif request.method == "GET" and (match := STATUS.fullmatch(request.path)):
                api = "GetModelMetadata" if match["metadata"] else "GetModelStatus"
                body = self._describe(match)
            elif request.method == "OPTIONS":
                api, body = "Options", _preflight(request)
            else:
                raise errors.invalid(f"Malformed request: {request.method} {request.path}")
            status = "OK"
            return Response(200, body)
        except Exception as error:
            answer = errors.answer_to(error)
            status = answer.code.name
            return _as_response(answer)
        finally:
            self._metrics.count(status, "REST", api, time.perf_counter() - start)

    def refusal_of_body(self, path):
        """Returns the `Response` to a request with a body; None if the path takes it."""
        if is_rest(path):
            return None
        return (self._page and self._page.answer("POST", path)) or NOT_FOUND

    def refuse(self, error):
        """Returns the `Response` to an incomplete or malformed request."""
        self._metrics.count(error.code.name, "REST", "Predict", 0.0)
        return _as_response(error)

    async def _predict(self, request, match):
        if match["method"].lower() != "predict":
            raise errors.not_predict(match["method"])
        is_gzip = "gzip" in request.headers.get("content-encoding", "").lower()
        size = self._settings.max_body_bytes if is_gzip else len(request.body)
        with self._versions.using(*_target(match)) as version:
            signatures = version.model.signatures
            signature, inputs, is_rows = await self._one_thread.run(
                size, self._read, request, is_gzip, signatures
            )
            request.share.close()  # the queue counts the inputs
            outputs = await self._batching.run(signature, inputs, request.deadline)
            del inputs
        size = sum(map(num_bytes, outputs.values()))
        request.share.hold(size)
        return await self._one_thread.run(size, json_tensors.answer, outputs, is_rows)

    def _read(self, request, is_gzip, signatures):
        """Returns the signature that a request asks for, its inputs, and whether they are rows.

        All in one go, so that there is one parsed document at a time. Frees the body.
        """
        body, request.body = request.body, None
        if is_gzip:
            body = _decompressed(body, self._settings.max_body_bytes)
        document = json_tensors.parse(bytes(body), self._settings)
        name = json_tensors.signature_name(document) or DEFAULT_SIGNATURE
        if name not in signatures:
            raise errors.invalid(f'Serving signature name: "{name}" not found in signature def')
        return signatures[name], *json_tensors.inputs(document, signatures[name], self._settings)

    def _describe(self, match):
        """Returns the status or the metadata of the model as JSON bytes."""
        model_name, number, label = _target(match)
        if model_name is None:
            raise errors.invalid("Missing model name in request.")
        if match["metadata"]:
            with self._versions.using(model_name, number, label) as version:
                if version not in self._metadata:  # kept, because it is slow to make
                    self._metadata[version] = _metadata(model_name, version)
                return self._metadata[version]
        # TensorFlow Serving ignores a label here
        found = self._versions.status(model_name, number)
        return json.dumps(_as_dict(protos.status(found)), indent=1).encode()


def is_rest(path):
    """Returns whether a path is one of TensorFlow Serving's interface."""
    return path.lower().startswith("/v1/")


def _metadata(model_name, version):
    spec = _as_dict(protos.model_spec(model_name, version))
    signatures = _as_dict(protos.signatures(version))
    document = {"model_spec": spec, "metadata": {"signature_def": signatures}}
    return json.dumps(document, indent=1).encode()


def _preflight(request):
    """Answers a CORS preflight. The answer has no header that would allow the request."""
    if not re.match("https?://", request.headers.get("origin", "")):
        raise errors.ServingError(
            grpc.StatusCode.FAILED_PRECONDITION, "Origin header is missing in CORS preflight"
        )
    return b""


def _as_response(error):
    body = json.dumps({"error": str(error)}, ensure_ascii=False).encode("utf-8", "replace")
    return Response(error.http_status, body)


def _target(match):
    """Returns the arguments of `Versions.using`: the model's name, version and label."""
    name, label = match["model"], match["label"]
    digits = match["version"]
    number = digits and version_number(digits)
    if digits and number is None:
        raise errors.invalid(f"Failed to convert version: {digits} to numeric.")
    return name and urllib.parse.unquote(name), number, label and urllib.parse.unquote(label)


def _decompressed(body, limit):
    """Returns the decompressed gzip body, of at most `limit` bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            content = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise errors.invalid(f"Expected a gzip body. Received: {error}") from None
    if len(content) > limit:
        raise too_large_body(limit)
    return content


def _as_dict(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
