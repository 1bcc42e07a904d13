"""Calls of gRPC methods that take one message: read, limited in number and time, counted."""

import asyncio
import functools
import time

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from keras_transformer import console
from keras_transformer.serving.errors import ServingError, from_tensorflow, invalid, timed_out

READ_AT_ONCE = 64
"""Messages that are received at the same time, each of which may take `max_body_bytes`."""
LONG_METHODS = {"HandleReloadConfigRequest"}
"""Methods that may take longer than a request: they wait for versions to be loaded."""


class Calls:
    """Receives the messages of one server's calls, and sends the answers.

    gRPC itself would receive a message without a time limit, keep it until the call is answered,
    and show an error of Python's to a client whose message it cannot read.

    Args:
        settings: `ServingConfig`.
        metrics: `Metrics`.
    """

    def __init__(self, settings, metrics):
        self._settings = settings
        self._metrics = metrics
        self._num_calls = 0
        self._reading = asyncio.Semaphore(READ_AT_ONCE)

    def handlers(self, service, descriptor):
        """Returns the handlers of a service, for a `grpc.aio.Server`.

        Args:
            service: has a coroutine function for each method, from message to message.
            descriptor: the service's `ServiceDescriptor`.
        """
        handlers = {}
        for method in descriptor.methods:
            answer = getattr(service, method.name)
            message_class = message_factory.GetMessageClass(method.input_type)
            call = functools.partial(self._call, answer, message_class, method.name)
            handlers[method.name] = grpc.stream_unary_rpc_method_handler(call)
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    def take_place(self, context):
        """Counts a call until its answer has been sent.

        Raises:
            ServingError: there are too many.
        """
        most = self._settings.max_connections
        if self._num_calls >= most:
            raise ServingError(
                grpc.StatusCode.UNAVAILABLE,
                f"Expected at most {most} calls at the same time. Received more. Try again later.",
            )
        self._num_calls += 1
        context.add_done_callback(self._leave_place)

    async def read(self, message_class, context):
        """Returns the message that a call begins with.

        Raises:
            ServingError: there is none, or it takes too long to come.
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
                f"Expected a {name}. Received {len(content)} bytes that are none. "
                "Check how the client encodes it."
            ) from None

    def _leave_place(self, _context):
        self._num_calls -= 1

    async def _content(self, context):
        async with self._reading:
            return await context.read()

    async def _call(self, answer, message_class, api, _messages, context):
        """Answers a call, turns what goes wrong inside into its status, and counts it."""
        start = time.perf_counter()
        status = grpc.StatusCode.CANCELLED  # unless something else is known
        try:
            self.take_place(context)
            answering = answer(await self.read(message_class, context))  # its memory is not held
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
                console.say(f"failed: {type(error).__name__}: {error}")
                error = from_tensorflow(error)
            status = error.code
            await context.abort(error.code, str(error))
        finally:
            self._metrics.count(status.name, "GRPC", api, time.perf_counter() - start)
