"""What a server answers to what it cannot do: a gRPC code, its HTTP status, one line of text."""

import re

import grpc
import tensorflow as tf

CODES = {code.value[0]: code for code in grpc.StatusCode}
HTTP_STATUS = {  # as TensorFlow Serving translates its codes
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}

PATH = re.compile(r"(?<![\w.])/(?:[^\s/:;,'\"]+/)*([^\s/:;,'\"]+)")
MOST_SAID = 2000
"""Bytes of a message; gRPC writes some as three, has a limit, and says something else over it."""


class ServingError(Exception):
    """A request's refusal or failure.

    Args:
        code: `grpc.StatusCode`.
        message: str.
        http_status: int; None: what belongs to the code.
    """

    def __init__(self, code, message, http_status=None):
        said = message.encode("utf-8", "replace")
        if len(said) > MOST_SAID:
            message = f"{said[:MOST_SAID].decode('utf-8', 'ignore')}..."
        super().__init__(message)
        self.code = code
        self.http_status = http_status or HTTP_STATUS.get(code, 500)


def invalid(message, http_status=None):
    return ServingError(grpc.StatusCode.INVALID_ARGUMENT, message, http_status)


def too_large(message):
    """TensorFlow Serving has no limits of its own; a proxy in front of it answers 413 too."""
    return ServingError(grpc.StatusCode.INVALID_ARGUMENT, message, http_status=413)


def timed_out(seconds):
    return ServingError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        f"Timed out after {seconds:g} seconds. Send fewer or shorter texts, or try again later.",
    )


def not_loaded(seconds):
    return ServingError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        f"Expected it to be loaded within {seconds:g} seconds. Loading was given up. "
        "Export it again, or raise --load-timeout.",
    )


def damaged(reason):
    return ServingError(
        grpc.StatusCode.DATA_LOSS,
        f"Expected a whole export. Received: damaged files ({reason}). Export or copy it again.",
    )


def not_predict(method):
    return ServingError(
        grpc.StatusCode.UNIMPLEMENTED,
        f"Expected the method predict. Received: {method}, which takes tf.Example and does not "
        "suit text.",
    )


def from_tensorflow(error):
    """Returns the `ServingError` of what an operation of the graph has raised."""
    if isinstance(error, ServingError):
        return error
    if not isinstance(error, tf.errors.OpError):
        message = f"{type(error).__name__}: {_without_paths(str(error))}"
        return ServingError(grpc.StatusCode.INTERNAL, message)
    message = (error.message or "").removeprefix("Graph execution error:")  # Python's, not C++'s
    first_line = message.strip().partition("\n")[0]
    code = CODES.get(error.error_code, grpc.StatusCode.UNKNOWN)
    return ServingError(code, _without_paths(first_line))


def _without_paths(message):
    """Returns a message in which files have their last names alone: clients see no directories."""
    return PATH.sub(r"\1", message)
