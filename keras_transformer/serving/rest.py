"""The REST interface: TensorFlow Serving's paths, bodies and errors, as an ASGI application."""

import asyncio
import gzip
import io
import json
import re
import time
import urllib.parse
import zlib

import grpc
from google.protobuf import json_format
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from keras_transformer import console
from keras_transformer.serving import json_tensors, metrics, model_protos
from keras_transformer.serving.errors import (
    ServingError,
    from_tensorflow,
    invalid,
    not_predict,
    too_large,
)
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
FEW_BYTES = 2**16


class RestInterface:
    """Answers HTTP requests: an ASGI application.

    Args:
        predicting: `Predicting`.
        settings: `ServingConfig`.
        measured: `Metrics`.
    """

    def __init__(self, predicting, settings, measured):
        self._predicting = predicting
        self._settings = settings
        self._metrics = measured

    async def __call__(self, scope, receive, send):
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request):
        path = request.scope["raw_path"].decode("latin-1")
        if path == metrics.PATH and request.method == "GET":
            return Response(self._metrics.page(), media_type=metrics.CONTENT_TYPE)
        if not path.lower().startswith("/v1/"):
            return PlainTextResponse("Not Found", 404)
        start = time.perf_counter()
        api, status = "Predict", "OK"
        try:
            if request.method == "POST" and (match := PREDICT.fullmatch(path)):
                body = await self._predict(request, match)
            elif request.method == "GET" and (match := STATUS.fullmatch(path)):
                api = "GetModelMetadata" if match["metadata"] else "GetModelStatus"
                body = self._describe(match)
            else:
                raise invalid(f"Malformed request: {request.method} {path}")
            http_status = 200
        except ClientDisconnect:
            status, http_status, body = "CANCELLED", 499, b""
        except Exception as error:
            if not isinstance(error, ServingError):
                console.say(f"failed: {type(error).__name__}: {error}")
                error = from_tensorflow(error)
            status, http_status = error.code.name, error.http_status
            body = json.dumps({"error": str(error)}, ensure_ascii=False).encode("utf-8", "replace")
        self._metrics.count(status, "REST", api, time.perf_counter() - start)
        return Response(body, http_status, media_type="application/json")

    async def _predict(self, request, match):
        if match["method"].lower() != "predict":
            raise not_predict(match["method"])
        # a limit of its own: the request's time does not run while it waits for a run
        timeout = self._settings.request_timeout
        try:
            body = await asyncio.wait_for(self._body(request), timeout)
        except asyncio.TimeoutError:
            raise ServingError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"Expected the whole request within {timeout:g} seconds. Received a part.",
            ) from None
        document = await self._aside(len(body), json_tensors.parse, body, self._settings)
        name = json_tensors.signature_name(document)
        with self._predicting.signature(_target(match), name) as (_, signature):
            arguments = (document, signature, self._settings)
            inputs, is_rows = await self._aside(len(body), json_tensors.inputs, *arguments)
            outputs = await self._predicting.predict(signature, inputs)
        size = sum(array.nbytes for array in outputs.values())
        return await self._aside(size, json_tensors.answer, outputs, is_rows)

    @staticmethod
    async def _aside(size, function, *arguments):
        """Calls a function of so many bytes: in a thread, where they would hold others up."""
        if size < FEW_BYTES:
            return function(*arguments)
        return await asyncio.to_thread(function, *arguments)

    async def _body(self, request):
        """Returns the body, inflated; it may not be larger than allowed before or after that."""
        most = self._settings.max_body_bytes
        encoding = request.headers.get("content-encoding", "").lower() or "identity"
        if encoding not in ("identity", "gzip"):
            raise invalid(f"Expected the content encoding gzip, or none. Received: {encoding}")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise _too_large(most)
        if encoding == "identity":
            return bytes(body)
        return await self._aside(len(body), _inflated, bytes(body), most)

    def _describe(self, match):
        """Returns the status or the metadata of the model, as JSON."""
        model_name, number, label = _target(match)
        if model_name is None:
            raise invalid("Missing model name in request.")
        versions = self._predicting.versions
        if match["metadata"]:
            with versions.using(model_name, number, label) as version:
                spec = _as_dict(model_protos.model_spec(model_name, version))
                signatures = _as_dict(model_protos.signatures(version))
            document = {"model_spec": spec, "metadata": {"signature_def": signatures}}
        else:  # TensorFlow Serving takes no notice of a label here
            found = versions.status(model_name, number)
            document = _as_dict(model_protos.status(found))
        return json.dumps(document, indent=1).encode()


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
        raise _too_large(most)
    return inflated


def _too_large(most):
    return too_large(f"Expected a body of at most {most} bytes. Received more. Send fewer texts.")


def _as_dict(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
