"""The standard health service of gRPC, for probes and load balancers.

https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

import asyncio

import grpc
from grpc_health.v1 import health_pb2

from keras_transformer.serving.errors import ServingError

SERVICE_NAME = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
WATCH_SECONDS = 0.5
"""Interval at which `Watch` looks whether the status has changed."""


class Health:
    """Reports whether the server, under the name "", and its model can answer.

    Args:
        versions: `Versions`.
        calls: `Calls`.
    """

    def __init__(self, versions, calls):
        self._versions = versions
        self._calls = calls
        self._is_stopping = asyncio.Event()

    def handlers(self):
        """Returns the handlers of the service, for a `grpc.aio.Server`."""
        handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)

    def stop(self):
        """Reports NOT_SERVING from now on, and ends all open `Watch` calls."""
        self._is_stopping.set()

    def status(self, name):
        """Returns the `ServingStatus` of a name; SERVICE_UNKNOWN for an unknown name."""
        if name not in ("", self._versions.model_name):
            return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        is_ready = self._versions.is_ready and not self._is_stopping.is_set()
        response = health_pb2.HealthCheckResponse
        return response.SERVING if is_ready else response.NOT_SERVING

    async def _check(self, _messages, context):
        try:
            name = await self._name(context)
            status = self.status(name)
            if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
                raise ServingError(
                    grpc.StatusCode.NOT_FOUND,
                    f"Expected the name {self._versions.model_name}, or no name. Received: {name}.",
                )
        except ServingError as error:
            await context.abort(error.code, str(error))
        return _response(status)

    async def _watch(self, _messages, context):
        """Sends the status now, and again whenever it changes."""
        try:
            self._calls.take_slot(context)
            name = await self._name(context)
        except ServingError as error:
            await context.abort(error.code, str(error))
        sent = None
        while True:
            status = self.status(name)
            if status != sent:
                await context.write(_response(status))
                sent = status
            if self._is_stopping.is_set():
                return
            try:
                await asyncio.wait_for(self._is_stopping.wait(), WATCH_SECONDS)
            except asyncio.TimeoutError:
                continue

    async def _name(self, context):
        request = await self._calls.read(health_pb2.HealthCheckRequest, context)
        return request.service


def _response(status):
    return health_pb2.HealthCheckResponse(status=status).SerializeToString()
