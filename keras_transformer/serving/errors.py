"""Errors that a server answers with: a gRPC code, an HTTP status and one line of text."""

import asyncio
import functools
import re

import grpc
import tensorflow as tf

from keras_transformer.serving import LOG

CODES = {code.value[0]: code for code in grpc.StatusCode}
HTTP_STATUS = {  # the same mapping as in TensorFlow Serving
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

# in messages, file names replace paths: clients must not see directories
PATH = re.compile(r"(?<![\w.])/(?:[^\s/:;,'\"]+/)*([^\s/:;,'\"]+)")
MAX_MESSAGE_BYTES = 2000
"""Longer messages are cut. gRPC percent-encodes some bytes as three, and replaces a message that is
longer than its limit by another one."""


class ServingError(Exception):
    """A request was refused or failed.

    Args:
        code: `grpc.StatusCode`.
        message: str.
        http_status: int. None means the HTTP status that belongs to the code.
    """

    def __init__(self, code, message, http_status=None):
        encoded = message.encode("utf-8", "replace")
        if len(encoded) > MAX_MESSAGE_BYTES:
            message = f"{encoded[:MAX_MESSAGE_BYTES].decode('utf-8', 'ignore')}..."
        super().__init__(message)
        self.code = code
        self.http_status = http_status or HTTP_STATUS.get(code, 500)


invalid = functools.partial(ServingError, grpc.StatusCode.INVALID_ARGUMENT)
not_found = functools.partial(ServingError, grpc.StatusCode.NOT_FOUND)
not_ready = functools.partial(ServingError, grpc.StatusCode.FAILED_PRECONDITION)
late = functools.partial(ServingError, grpc.StatusCode.DEADLINE_EXCEEDED)
unavailable = functools.partial(ServingError, grpc.StatusCode.UNAVAILABLE)
# 413, as a proxy answers; TensorFlow Serving itself has no limits
too_large = functools.partial(invalid, http_status=413)


def timed_out(seconds):
    return late(
        f"Timed out after {seconds:g} seconds. Send fewer or shorter texts, or try again later."
    )


async def in_time(awaitable, seconds, allowed):
    """Returns what an awaitable returns within some seconds, of the `allowed` ones of its request.

    Raises:
        ServingError: DEADLINE_EXCEEDED if it takes longer.
    """
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except asyncio.TimeoutError:
        raise timed_out(allowed) from None


def damaged(reason):
    return ServingError(
        grpc.StatusCode.DATA_LOSS,
        f"Expected an intact export. Received: damaged files ({reason}). Export or copy it again.",
    )


def not_predict(method):
    return ServingError(
        grpc.StatusCode.UNIMPLEMENTED,
        f"Expected the method predict. Received: {method}, which takes tf.Example instead of text.",
    )


def answer_to(error):
    """Returns the `ServingError` that answers a request which has raised an exception.

    An exception that nobody expects is logged. The frames of each are dropped: they hold the
    request, which would stay in memory until the garbage collector comes.
    """
    if not isinstance(error, ServingError):
        LOG.warning(f"failed: {type(error).__name__}: {error}")
    error.__traceback__ = error.__context__ = None
    return from_tensorflow(error)


def from_tensorflow(error):
    """Returns the `ServingError` for an exception that a run of the graph has raised."""
    if isinstance(error, ServingError):
        return error
    if not isinstance(error, tf.errors.OpError):
        message = f"{type(error).__name__}: {error}"
        return ServingError(grpc.StatusCode.INTERNAL, PATH.sub(r"\1", message))
    message = (error.message or "").removeprefix("Graph execution error:")  # Python adds it
    first_line = message.strip().partition("\n")[0]
    code = CODES.get(error.error_code, grpc.StatusCode.UNKNOWN)
    return ServingError(code, PATH.sub(r"\1", first_line))
