"""The gRPC services: TensorFlow Serving's prediction and model services, and gRPC's health service.

https://github.com/grpc/grpc/blob/master/doc/health-checking.md describes the health service.
"""

import asyncio

import grpc
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, model_management_pb2, predict_pb2

from keras_transformer.serving import errors, protos
from keras_transformer.serving.batching import num_bytes
from keras_transformer.serving.loaded_model import DEFAULT_SIGNATURE
from keras_transformer.serving.versions import ALL, LATEST

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
MAX_WATCHES = 256
WATCH_SECONDS = 0.5
"""Interval at which `Health.Watch` looks whether the status has changed."""


class PredictionService:
    """Predict and GetModelMetadata. The other methods take tf.Example instead of text."""

    def __init__(self, versions, batching, settings, one_thread):
        self._versions = versions
        self._batching = batching
        self._settings = settings
        self._one_thread = one_thread

    async def Predict(self, request):
        target = _target(request)
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        with self._versions.using(*target) as version:
            signature = version.model.signatures.get(name)
            if signature is None:
                raise errors.not_ready(f'Serving signature key "{name}" not found.')
            inputs = await self._one_thread.run(
                request.ByteSize(), protos.inputs, request, signature, self._settings
            )
            names = protos.output_names(request, signature)
            spec = protos.model_spec(request.model_spec.name, version, signature.name)
            del request  # frees its memory while its rows wait
            outputs = await self._batching.run(signature, inputs)
        size = sum(num_bytes(outputs[name]) for name in names)
        return await self._one_thread.run(size, _predicted, spec, names, outputs)

    async def GetModelMetadata(self, request):
        target = _target(request)
        if not request.metadata_field:
            raise errors.invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise errors.invalid(f"Metadata field {field} is not supported")
        with self._versions.using(*target) as version:
            response = get_model_metadata_pb2.GetModelMetadataResponse(
                model_spec=protos.model_spec(request.model_spec.name, version)
            )
            response.metadata["signature_def"].Pack(protos.signatures(version))
        return response


def _predicted(spec, names, outputs):
    tensors = {name: protos.to_proto(outputs[name]) for name in names}
    return predict_pb2.PredictResponse(model_spec=spec, outputs=tensors)


class ModelService:
    """GetModelStatus and HandleReloadConfigRequest, for the one model of this server."""

    def __init__(self, versions):
        self._versions = versions

    async def GetModelStatus(self, request):
        name, number, _ = _target(request)
        return protos.status(self._versions.status(name, number))

    async def HandleReloadConfigRequest(self, request):
        configs = request.config.model_config_list.config
        names = [config.name for config in protos.few("models", configs)]
        if names != [self._versions.model_name]:
            raise errors.invalid(
                f"Expected a model_config_list with one model, {self._versions.model_name}. "
                f"Received: {', '.join(names) or 'none'}."
            )
        wanted = _wanted(configs[0].model_version_policy)
        labels = dict(protos.few("labels", configs[0].version_labels))
        await self._versions.change(wanted, labels)
        return model_management_pb2.ReloadConfigResponse()


def _target(request):
    """Returns the arguments of `Versions.using`: the model's name, version and label."""
    if not request.HasField("model_spec"):
        raise errors.invalid("Missing ModelSpec")
    spec = request.model_spec
    number = spec.version.value if spec.HasField("version") else None
    return spec.name, number, spec.version_label or None


def _wanted(policy):
    """Returns the versions that a version policy asks for, in the form that `Versions` takes."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return ALL
    if choice == "specific":
        return set(protos.few("versions", policy.specific.versions))
    if policy.latest.num_versions > 1:
        raise errors.ServingError(
            grpc.StatusCode.UNIMPLEMENTED,
            "Expected the version policy specific, all, or latest with one version. "
            f"Received: latest with {policy.latest.num_versions}. List them under specific.",
        )
    return LATEST


class Health:
    """Reports whether the server, under the name "", and its model can answer.

    Args:
        calls: the `Calls` that receive the messages.
    """

    def __init__(self, versions, calls):
        self._versions = versions
        self._calls = calls
        self._is_stopping = asyncio.Event()
        self._watching = set()

    def handlers(self):
        """Returns the handlers of the service, for a `grpc.aio.Server`."""
        handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler(HEALTH, handlers)

    def stop(self):
        """Reports NOT_SERVING from now on, and ends all open `Watch` calls."""
        self._is_stopping.set()

    def status(self, name):
        """Returns the `ServingStatus` of a name; SERVICE_UNKNOWN for an unknown name."""
        response = health_pb2.HealthCheckResponse
        if name not in ("", self._versions.model_name):
            return response.SERVICE_UNKNOWN
        is_ready = self._versions.available() and not self._is_stopping.is_set()
        return response.SERVING if is_ready else response.NOT_SERVING

    async def _check(self, _messages, context):
        try:
            name = await self._name(context)
            status = self.status(name)
            if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
                raise errors.not_found(
                    f"Expected the name {self._versions.model_name}, or no name. Received: {name}."
                )
        except errors.ServingError as error:
            await context.abort(error.code, str(error))
        return _response(status)

    async def _watch(self, _messages, context):
        """Sends the status now, and again whenever it changes."""
        try:
            name = await self._name(context)
            if len(self._watching) >= MAX_WATCHES:
                raise errors.unavailable(
                    f"Expected at most {MAX_WATCHES} calls of Watch. Received more. Call Check."
                )
        except errors.ServingError as error:
            await context.abort(error.code, str(error))
        self._watching.add(context)
        context.add_done_callback(self._watching.discard)
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
