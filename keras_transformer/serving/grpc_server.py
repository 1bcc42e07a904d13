"""The gRPC server: its port, its limits on connections, and how it receives and counts calls."""

import asyncio
import functools
import time

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

from keras_transformer.serving import LOG, errors
from keras_transformer.serving.grpc_services import Health, ModelService, PredictionService

STREAMS_PER_CONNECTION = 64
"""Calls at the same time on one connection. Further calls wait in the client."""
MAX_MESSAGES_READ = 64
"""Messages that are received at the same time. Each may have up to `max_body_bytes`."""
LONG_METHODS = {"HandleReloadConfigRequest"}
"""Methods without the time limit of a request: they wait until versions are loaded."""
MAX_AGE_IN_REQUESTS = 2
"""Maximum age of a connection, as a multiple of the time limit of a request. At that age its client
is told to open a new connection."""


class GrpcServer:
    """Answers gRPC calls. Create and use it in one event loop."""

    def __init__(self, versions, batching, settings, metrics):
        calls = Calls(settings, metrics)
        self._health = Health(versions, calls)
        self._server = grpc.aio.server(options=_options(settings))
        handlers = [self._health.handlers()]
        for service, module in (
            (PredictionService(versions, batching, settings), prediction_service_pb2),
            (ModelService(versions), model_service_pb2),
        ):
            descriptor = module.DESCRIPTOR.services_by_name[type(service).__name__]
            handlers.append(calls.handlers(service, descriptor))
        self._server.add_generic_rpc_handlers(handlers)

    def bind(self, host, port):
        """Binds a port, and returns its number.

        Raises:
            RuntimeError: the port cannot be used.
        """
        if not 0 <= port < 2**16:  # gRPC would silently take it modulo 65,536
            raise RuntimeError
        return self._server.add_insecure_port(f"{in_brackets(host)}:{port}")

    async def start(self):
        await self._server.start()

    async def stop(self, grace):
        """Refuses new calls, and aborts open ones after `grace` seconds; None aborts at once."""
        self._health.stop()
        await self._server.stop(grace)


def in_brackets(host):
    """Returns a host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def _options(settings):
    """Returns gRPC's options, with times in milliseconds.

    They close connections whose client sends nothing, stops in the middle of a handshake or after
    the headers, or reads nothing. A client that reads but blocks an answer by flow control is
    visible to gRPC only. For this reason every connection has a maximum age: open calls get some
    time to finish, and new calls go to a new connection.
    """
    request = _milliseconds(settings.request_timeout)
    max_age = _milliseconds(MAX_AGE_IN_REQUESTS * settings.request_timeout)
    return [
        ("grpc.max_receive_message_length", settings.max_body_bytes),
        ("grpc.so_reuseport", 0),  # a second server on the same port is an error
        ("grpc.max_allowed_incoming_connections", settings.max_grpc_connections),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.server_handshake_timeout_ms", request),
        ("grpc.max_connection_idle_ms", _milliseconds(settings.idle_timeout)),
        ("grpc.keepalive_time_ms", request),
        ("grpc.http2.ping_timeout_ms", request),
        ("grpc.max_connection_age_ms", max_age),
        ("grpc.max_connection_age_grace_ms", request),
    ]


def _milliseconds(seconds):
    return min(max(1, round(1000 * seconds)), 2**31 - 1)


class Calls:
    """Receives the messages of a server's calls, and sends the answers.

    The methods are registered as streams, so that this class reads the message itself: gRPC would
    receive it without a time limit, keep it in memory until the call is answered, and answer a
    message that it cannot parse with a Python error.
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
            raise errors.unavailable(
                f"Expected at most {limit} calls at the same time. Received more. Try again later."
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
            raise errors.timed_out(seconds) from None
        name = message_class.DESCRIPTOR.name
        if content is grpc.aio.EOF:
            raise errors.invalid(f"Expected a {name}. Received no message.")
        try:
            return message_class.FromString(content)
        except DecodeError:
            raise errors.invalid(
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
                raise errors.timed_out(seconds) from None
            status = grpc.StatusCode.OK
            return response.SerializeToString()
        except Exception as error:
            if not isinstance(error, errors.ServingError):
                LOG.warning(f"failed: {type(error).__name__}: {error}")
                error = errors.from_tensorflow(error)
            status = error.code
            await context.abort(error.code, str(error))
        finally:
            self._metrics.count(status.name, "GRPC", api, time.perf_counter() - start)
