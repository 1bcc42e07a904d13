"""The REST interface: TensorFlow Serving's paths, bodies and errors."""

import asyncio
import concurrent.futures
import contextlib
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

from keras_transformer import console
from keras_transformer.serving import json_tensors, metrics, model_protos
from keras_transformer.serving.errors import (
    ServingError,
    from_tensorflow,
    invalid,
    not_predict,
    timed_out,
)
from keras_transformer.serving.http_connection import NOT_FOUND, Response, too_large_body
from keras_transformer.serving.versions import version_number

VERSION_OR_LABEL = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
PREDICT = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){VERSION_OR_LABEL}:(?P<method>predict|classify|regress)",
    re.IGNORECASE,
)
STATUS = re.compile(
    rf"/v1/models(?:/(?P<model>[^/:]+))?{VERSION_OR_LABEL}(?:/(?P<metadata>metadata))?",
    re.IGNORECASE,
)
FEW_BYTES = 2**13


class RestInterface:
    """Answers the requests of an `HttpServer`.

    Args:
        predicting: `Predicting`.
        settings: `ServingConfig`.
        measured: `Metrics`.
    """

    def __init__(self, predicting, settings, measured):
        self._predicting = predicting
        self._settings = settings
        self._metrics = measured
        self._metadata = weakref.WeakKeyDictionary()  # of each `Version`, as bytes
        self._loop = asyncio.get_running_loop()
        # one: of several large documents each would take its memory, and each its turn from the
        # event loop's
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "json")

    async def answer(self, request):
        """Returns the `Response` to a `Request`."""
        if request.path == metrics.PATH and request.method == "GET":
            return Response(200, self._metrics.page(), metrics.CONTENT_TYPE)
        if not self.has(request.path):
            return NOT_FOUND
        start = time.perf_counter()
        api, status = "Predict", "CANCELLED"  # unless something else is known
        try:
            if request.method == "POST" and (match := PREDICT.fullmatch(request.path)):
                body = await self._predict(request, match)
            elif request.method == "GET" and (match := STATUS.fullmatch(request.path)):
                api = "GetModelMetadata" if match["metadata"] else "GetModelStatus"
                body = self._describe(match)
            elif request.method == "OPTIONS":
                api, body = "Options", _preflight(request)
            else:
                raise invalid(f"Malformed request: {request.method} {request.path}")
            status = "OK"
            return Response(200, body)
        except Exception as error:
            if not isinstance(error, ServingError):
                with contextlib.suppress(OSError):  # nobody reads the log any more
                    console.say(f"failed: {type(error).__name__}: {error}")
                error = from_tensorflow(error)
            status = error.code.name
            return _as_response(error)
        finally:
            self._metrics.count(status, "REST", api, time.perf_counter() - start)

    def has(self, path):
        """Returns whether a path is one that takes requests with a body."""
        return path.lower().startswith("/v1/")

    def refuse(self, error):
        """Returns the `Response` to a request that does not come whole, or not as it must."""
        self._metrics.count(error.code.name, "REST", "Predict", 0.0)
        return _as_response(error)

    def close(self):
        """Ends the thread; nothing may be asked any more."""
        self._thread.shutdown()

    async def _predict(self, request, match):
        if match["method"].lower() != "predict":
            raise not_predict(match["method"])
        deadline = request.deadline
        is_gzip = "gzip" in request.headers.get("content-encoding", "").lower()
        size = self._settings.max_body_bytes if is_gzip else len(request.body)
        document = await self._aside(size, deadline, self._document, request, is_gzip)
        name = json_tensors.signature_name(document)
        with self._predicting.signature(_target(match), name) as (_, signature):
            arguments = (document, signature, self._settings)
            inputs, is_rows = await self._aside(size, deadline, json_tensors.inputs, *arguments)
            del document, arguments  # not kept while the inputs wait for their run
            outputs = await self._predicting.predict(signature, inputs, deadline)
        size = sum(array.nbytes for array in outputs.values())
        return await self._aside(size, deadline, json_tensors.answer, outputs, is_rows)

    def _document(self, request, is_gzip):
        """Returns what a request's body holds, and lets go of the body."""
        body, request.body = request.body, None
        if is_gzip:
            body = _inflated(body, self._settings.max_body_bytes)
        return json_tensors.parse(bytes(body), self._settings)

    async def _aside(self, size, deadline, function, *arguments):
        """Calls a function of so many bytes: in a thread, where they would hold others up."""
        if size < FEW_BYTES:
            return function(*arguments)
        call = self._loop.run_in_executor(self._thread, function, *arguments)
        try:
            return await asyncio.wait_for(call, deadline - self._loop.time())
        except asyncio.TimeoutError:
            raise timed_out(self._settings.request_timeout) from None

    def _describe(self, match):
        """Returns the status or the metadata of the model, as JSON."""
        model_name, number, label = _target(match)
        if model_name is None:
            raise invalid("Missing model name in request.")
        versions = self._predicting.versions
        if match["metadata"]:
            with versions.using(model_name, number, label) as version:
                if version not in self._metadata:  # once: it takes its time
                    self._metadata[version] = _metadata(model_name, version)
                return self._metadata[version]
        # TensorFlow Serving takes no notice of a label here
        found = versions.status(model_name, number)
        return json.dumps(_as_dict(model_protos.status(found)), indent=1).encode()


def _metadata(model_name, version):
    spec = _as_dict(model_protos.model_spec(model_name, version))
    signatures = _as_dict(model_protos.signatures(version))
    document = {"model_spec": spec, "metadata": {"signature_def": signatures}}
    return json.dumps(document, indent=1).encode()


def _preflight(request):
    """Answers a browser that asks whether it may; without a header that allows it, it may not."""
    if not re.match("https?://", request.headers.get("origin", "")):
        raise ServingError(
            grpc.StatusCode.FAILED_PRECONDITION, "Origin header is missing in CORS preflight"
        )
    return b""


def _as_response(error):
    body = json.dumps({"error": str(error)}, ensure_ascii=False).encode("utf-8", "replace")
    return Response(error.http_status, body)


def _target(match):
    """Returns the model's name, version and label, as `Versions.using` takes them."""
    name, label = match["model"], match["label"]
    digits = match["version"]
    number = digits and version_number(digits)
    if digits and number is None:
        raise invalid(f"Failed to convert version: {digits} to numeric.")
    return name and urllib.parse.unquote(name), number, label and urllib.parse.unquote(label)


def _inflated(body, most):
    """Returns what a body in gzip holds, of at most so many bytes."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            inflated = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise invalid(f"Expected a body in gzip. Received: {error}") from None
    if len(inflated) > most:
        raise too_large_body(most)
    return inflated


def _as_dict(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
