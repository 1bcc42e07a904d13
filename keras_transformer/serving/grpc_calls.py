"""Receives gRPC calls with one request message, limits their number and time, and counts them."""

import asyncio
import functools
import time

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from keras_transformer.serving import LOG
from keras_transformer.serving.errors import ServingError, from_tensorflow, invalid, timed_out

MAX_MESSAGES_READ = 64
"""Messages that are received at the same time. Each may have up to `max_body_bytes`."""
LONG_METHODS = {"HandleReloadConfigRequest"}
"""Methods without the time limit of a request: they wait until versions are loaded."""


class Calls:
    """Receives the messages of a server's calls, and sends the answers.

    The methods are registered as streams, so that this class reads the message itself: gRPC would
    receive it without a time limit, keep it in memory until the call is answered, and answer a
    message that it cannot parse with a Python error.

    Args:
        settings: `ServingConfig`.
        metrics: `Metrics`.
    """

    def __init__(self, settings, metrics):
        self._settings = settings
        self._metrics = metrics
        self._num_calls = 0
        self._reading = asyncio.Semaphore(MAX_MESSAGES_READ)

    def handlers(self, service, descriptor):
        """Returns the handlers of a service, for a `grpc.aio.Server`.

        Args:
            service: object with one coroutine function for each method, which takes the request
                message and returns the response message.
            descriptor: the service's `ServiceDescriptor`.
        """
        handlers = {}
        for method in descriptor.methods:
            answer = getattr(service, method.name)
            message_class = message_factory.GetMessageClass(method.input_type)
            call = functools.partial(self._call, answer, message_class, method.name)
            handlers[method.name] = grpc.stream_unary_rpc_method_handler(call)
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    def take_slot(self, context):
        """Counts a call as open until its answer has been sent.

        Raises:
            ServingError: too many calls are open.
        """
        limit = self._settings.max_connections
        if self._num_calls >= limit:
            raise ServingError(
                grpc.StatusCode.UNAVAILABLE,
                f"Expected at most {limit} calls at the same time. Received more. Try again later.",
            )
        self._num_calls += 1
        context.add_done_callback(self._release_slot)

    async def read(self, message_class, context):
        """Returns the request message of a call.

        Raises:
            ServingError: there is no message, it cannot be parsed, or it takes too long to arrive.
        """
        seconds = self._settings.request_timeout
        try:
            content = await asyncio.wait_for(self._content(context), seconds)
        except asyncio.TimeoutError:
            raise timed_out(seconds) from None
        name = message_class.DESCRIPTOR.name
        if content is grpc.aio.EOF:
            raise invalid(f"Expected a {name}. Received no message.")
        try:
            return message_class.FromString(content)
        except DecodeError:
            raise invalid(
                f"Expected a {name}. Received {len(content)} bytes that cannot be parsed as one. "
                "Check how the client encodes it."
            ) from None

    def _release_slot(self, _context):
        self._num_calls -= 1

    async def _content(self, context):
        async with self._reading:
            return await context.read()

    async def _call(self, answer, message_class, api, _messages, context):
        """Answers and counts a call; an exception becomes its status."""
        start = time.perf_counter()
        status = grpc.StatusCode.CANCELLED  # until another status is known
        try:
            self.take_slot(context)
            # no variable holds the message, so its memory is free once it has been parsed
            answering = answer(await self.read(message_class, context))
            seconds = self._settings.request_timeout
            left = None if api in LONG_METHODS else start + seconds - time.perf_counter()
            try:
                response = await asyncio.wait_for(answering, left)
            except asyncio.TimeoutError:
                raise timed_out(seconds) from None
            status = grpc.StatusCode.OK
            return response.SerializeToString()
        except Exception as error:
            if not isinstance(error, ServingError):
                LOG.warning(f"failed: {type(error).__name__}: {error}")
                error = from_tensorflow(error)
            status = error.code
            await context.abort(error.code, str(error))
        finally:
            self._metrics.count(status.name, "GRPC", api, time.perf_counter() - start)
