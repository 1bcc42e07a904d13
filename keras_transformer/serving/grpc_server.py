"""The gRPC server: its port, its limits on connections, and how it receives and counts calls."""

import asyncio
import collections
import contextlib
import functools
import logging
import time

import grpc
from google.protobuf import message_factory
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

from keras_transformer.serving import errors, protos
from keras_transformer.serving.grpc_services import Health, ModelService, PredictionService
from keras_transformer.serving.memory import Memory, Share

STREAMS_PER_CONNECTION = 64
"""Calls at the same time on one connection. Further calls wait in the client."""
MAX_MESSAGES_READ = 16
"""Messages that are received at the same time, in addition to one on each connection. Each may have
up to `max_body_bytes`."""
CONNECTIONS_PER_SPARE = 8
"""For so many connections, one more is accepted on which predictions are refused: for probes."""
LONG_METHODS = {"HandleReloadConfigRequest"}
"""Methods without the time limit of a request: they wait until versions are loaded."""
MAX_AGE_IN_REQUESTS = 2
"""Maximum age of a connection, as a multiple of the time limit of a request. At that age its client
is told to open a new connection."""


GRPC_LOG = logging.getLogger("grpc._cython.cygrpc")


def _is_wanted(record):
    """Returns False for gRPC's report that an answer has no client any more, which gave up."""
    return "ExecuteBatchError raised in core" not in record.getMessage()


class GrpcServer:
    """Answers gRPC calls. Create and use it in one event loop."""

    def __init__(self, versions, batching, settings, metrics, one_thread):
        # apart, so that health and status never wait for predictions
        probes, predictions = (Calls(settings, metrics, one_thread) for _ in range(2))
        self._health = Health(versions, probes)
        self._server = grpc.aio.server(options=_options(settings))
        handlers = [self._health.handlers()]
        for calls, service, module in (
            (
                predictions,
                PredictionService(versions, batching, settings, one_thread),
                prediction_service_pb2,
            ),
            (probes, ModelService(versions), model_service_pb2),
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
        GRPC_LOG.addFilter(_is_wanted)  # once, however many servers there are
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
    most = settings.max_grpc_connections
    request = _milliseconds(settings.request_timeout)
    max_age = _milliseconds(MAX_AGE_IN_REQUESTS * settings.request_timeout)
    return [
        ("grpc.max_receive_message_length", settings.max_body_bytes),
        ("grpc.so_reuseport", 0),  # a second server on the same port is an error
        ("grpc.max_allowed_incoming_connections", most + -(-most // CONNECTIONS_PER_SPARE)),
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
    """Receives the messages of calls, and sends the answers.

    The methods are registered as streams, so that this class reads the message itself: gRPC would
    receive it without a time limit, keep it in memory until the call is answered, and answer a
    message that it cannot parse with a Python error.

    Nobody knows whether a client will send its message, so a call without one holds up only other
    calls of its own connection.
    """

    def __init__(self, settings, metrics, one_thread):
        self._settings = settings
        self._one_thread = one_thread
        self._metrics = metrics
        self._calling = collections.Counter()  # open calls of each connection
        self._open = set()  # the contexts of calls that have a message
        self._memory = Memory(settings.max_queued_bytes)  # of answers, which clients may never read
        self._reading = set()  # connections on which a message is received
        self._reading_more = asyncio.Semaphore(MAX_MESSAGES_READ)

    def handlers(self, service, descriptor):
        """Returns the handlers of a service, for a `grpc.aio.Server`.

        Args:
            service: object with a coroutine function for each method that it has, which takes the
                request message and returns the response message. Others are refused.
            descriptor: the service's `ServiceDescriptor`.
        """
        handlers = {}
        for method in descriptor.methods:
            answer = getattr(service, method.name, functools.partial(_refuse, method.name))
            message_class = message_factory.GetMessageClass(method.input_type)
            call = functools.partial(self._call, answer, message_class, method.name)
            handlers[method.name] = grpc.stream_unary_rpc_method_handler(call)
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    async def read(self, message_class, context):
        """Returns the request message of a call.

        Raises:
            ServingError: there is no message, it cannot be parsed, or it takes too long to arrive.
        """
        seconds = self._settings.request_timeout
        return await errors.in_time(self._message(message_class, context), seconds, seconds)

    async def _message(self, message_class, context):
        async with self._turn(context.peer()):
            content = await context.read()
            if content is grpc.aio.EOF:
                name = message_class.DESCRIPTOR.name
                raise errors.invalid(f"Expected a {name}. Received no message.")
            with contextlib.closing(Share(self._memory)) as share:
                share.hold(len(content))
                return await self._one_thread.parse(
                    len(content), protos.parse, message_class, content
                )

    @contextlib.asynccontextmanager
    async def _turn(self, connection):
        """Waits until a message may be received, which is at once for the first of a connection."""
        if connection in self._reading:
            async with self._reading_more:
                yield
            return
        self._reading.add(connection)
        try:
            yield
        finally:
            self._reading.remove(connection)

    def _count(self, context):
        """Counts a call of its connection until its answer has been sent."""
        connection, limit = context.peer(), self._settings.max_grpc_connections
        if connection not in self._calling and len(self._calling) >= limit:
            raise errors.unavailable(
                f"Expected calls on at most {limit} connections at the same time. Received more. "
                "Send several calls on one connection, or try again later."
            )
        self._calling[connection] += 1
        context.add_done_callback(lambda _: self._uncount(connection))

    def _uncount(self, connection):
        self._calling[connection] -= 1
        if not self._calling[connection]:
            del self._calling[connection]

    def _take_slot(self, context):
        """Counts a call as open until its answer has been sent."""
        limit = self._settings.max_connections
        if len(self._open) >= limit:
            raise errors.unavailable(
                f"Expected at most {limit} calls at the same time. Received more. Try again later."
            )
        self._open.add(context)
        context.add_done_callback(self._open.discard)

    async def _call(self, answer, message_class, api, _messages, context):
        """Answers and counts a call; an exception becomes its status."""
        start = time.perf_counter()
        seconds = self._settings.request_timeout
        status = grpc.StatusCode.CANCELLED  # until another status is known
        try:
            self._count(context)
            request = await self.read(message_class, context)
            self._take_slot(context)
            answering = answer(request)
            del request  # so that its memory can be freed
            left = None if api in LONG_METHODS else start + seconds - time.perf_counter()
            response = await errors.in_time(answering, left, seconds)
            answer = response.SerializeToString()
            share = Share(self._memory)
            share.hold(len(answer))
            context.add_done_callback(lambda _: share.close())
            status = grpc.StatusCode.OK
            return answer
        except Exception as error:
            error = errors.answer_to(error)
            status = error.code
            await context.abort(error.code, str(error))
        finally:
            self._metrics.count(status.name, "GRPC", api, time.perf_counter() - start)


async def _refuse(method, _request):
    raise errors.not_predict(method)
