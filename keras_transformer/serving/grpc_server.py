"""The gRPC server: its services, its port, and limits on connections."""

import grpc
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

from keras_transformer.serving.grpc_calls import Calls
from keras_transformer.serving.grpc_interface import ModelService, PredictionService
from keras_transformer.serving.health import Health

STREAMS_PER_CONNECTION = 64
"""Calls at the same time on one connection. Further calls wait in the client."""
MAX_AGE_IN_REQUESTS = 2
"""Maximum age of a connection, as a multiple of the time limit of a request. At that age its client
is told to open a new connection."""


class GrpcServer:
    """Answers gRPC calls. Create and use it in one event loop.

    Args:
        predicting: `Predicting`.
        settings: `ServingConfig`.
        metrics: `Metrics`.
    """

    def __init__(self, predicting, settings, metrics):
        calls = Calls(settings, metrics)
        services = {
            PredictionService(predicting, settings): prediction_service_pb2,
            ModelService(predicting, settings): model_service_pb2,
        }
        self._health = Health(predicting.versions, calls)
        self._server = grpc.aio.server(options=_options(settings))
        self._server.add_generic_rpc_handlers(
            [self._health.handlers()]
            + [
                calls.handlers(service, module.DESCRIPTOR.services_by_name[type(service).__name__])
                for service, module in services.items()
            ]
        )

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
