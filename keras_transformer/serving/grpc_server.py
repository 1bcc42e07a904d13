"""The gRPC server: its services, its port, and limits on what clients may hold open."""

import grpc
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

from keras_transformer.serving.grpc_calls import Calls
from keras_transformer.serving.grpc_interface import ModelService, PredictionService
from keras_transformer.serving.health import Health

STREAMS_PER_CONNECTION = 64
"""Calls at the same time on one connection; a client's further ones wait in the client."""
AGE_IN_REQUESTS = 2
"""Age of a connection, in time limits of a request, at which its client is told to open another."""


class GrpcServer:
    """Answers gRPC calls; made and used in one event loop.

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
        """Takes a port, and returns its number.

        Raises:
            RuntimeError: it cannot be used.
        """
        if not 0 <= port < 2**16:  # gRPC takes what is left of it
            raise RuntimeError
        host = f"[{host}]" if ":" in host else host
        return self._server.add_insecure_port(f"{host}:{port}")

    async def start(self):
        await self._server.start()

    async def stop(self, grace):
        """Refuses new calls, and ends those that there are after so many seconds, or at once."""
        self._health.stop()
        await self._server.stop(grace)


def _options(settings):
    """Returns gRPC's options; times are in milliseconds.

    Who sends nothing, half of a handshake, or headers alone, or reads nothing, is closed. A client
    that reads but does not let an answer's bytes come is known to gRPC alone: therefore every
    connection has an age, after which its calls may end and new ones go to another.
    """
    request = _milliseconds(settings.request_timeout)
    return [
        ("grpc.max_receive_message_length", settings.max_body_bytes),
        ("grpc.so_reuseport", 0),  # a second server at the same port is a mistake
        ("grpc.max_allowed_incoming_connections", settings.max_grpc_connections),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.server_handshake_timeout_ms", request),
        ("grpc.max_connection_idle_ms", _milliseconds(settings.idle_timeout)),
        ("grpc.keepalive_time_ms", request),
        ("grpc.http2.ping_timeout_ms", request),
        ("grpc.max_connection_age_ms", _milliseconds(AGE_IN_REQUESTS * settings.request_timeout)),
        ("grpc.max_connection_age_grace_ms", request),
    ]


def _milliseconds(seconds):
    return min(max(1, round(1000 * seconds)), 2**31 - 1)
