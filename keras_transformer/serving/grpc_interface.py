"""The gRPC interface: TensorFlow Serving's PredictionService and ModelService."""

import grpc
from tensorflow_serving.apis import get_model_metadata_pb2, model_management_pb2, predict_pb2

from keras_transformer.serving import model_protos, proto_tensors
from keras_transformer.serving.errors import ServingError, invalid, not_predict
from keras_transformer.serving.versions import ALL, LATEST


class _Service:
    def __init__(self, predicting, settings):
        self._predicting = predicting
        self._settings = settings


class PredictionService(_Service):
    """Predict and GetModelMetadata. The other methods take tf.Example instead of text."""

    async def Predict(self, request):
        name = request.model_spec.signature_name
        not_found = grpc.StatusCode.FAILED_PRECONDITION
        with self._predicting.signature(_target(request), name, not_found) as (version, signature):
            inputs = proto_tensors.inputs(request, signature, self._settings)
            names = proto_tensors.output_names(request, signature)
            spec = model_protos.model_spec(request.model_spec.name, version, signature.name)
            del request  # frees its memory while its rows wait
            outputs = await self._predicting.predict(signature, inputs)
        tensors = {name: proto_tensors.to_proto(outputs[name]) for name in names}
        return predict_pb2.PredictResponse(model_spec=spec, outputs=tensors)

    async def GetModelMetadata(self, request):
        target = _target(request)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        with self._predicting.versions.using(*target) as version:
            response = get_model_metadata_pb2.GetModelMetadataResponse(
                model_spec=model_protos.model_spec(request.model_spec.name, version)
            )
            response.metadata["signature_def"].Pack(model_protos.signatures(version))
        return response

    async def Classify(self, request):
        raise not_predict("Classify")

    async def Regress(self, request):
        raise not_predict("Regress")

    async def MultiInference(self, request):
        raise not_predict("MultiInference")


class ModelService(_Service):
    """GetModelStatus and HandleReloadConfigRequest, for the one model of this server."""

    async def GetModelStatus(self, request):
        name, number, _ = _target(request)
        return model_protos.status(self._predicting.versions.status(name, number))

    async def HandleReloadConfigRequest(self, request):
        versions = self._predicting.versions
        configs = request.config.model_config_list.config
        if [config.name for config in configs] != [versions.model_name]:
            raise invalid(
                f"Expected a model_config_list with one model, {versions.model_name}. "
                f"Received: {', '.join(config.name for config in configs) or 'none'}."
            )
        wanted = _wanted(configs[0].model_version_policy)
        await versions.change(wanted, dict(configs[0].version_labels))
        return model_management_pb2.ReloadConfigResponse()


def _target(request):
    """Returns the arguments of `Versions.using`: the model's name, version and label."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    number = spec.version.value if spec.HasField("version") else None
    return spec.name, number, spec.version_label or None


def _wanted(policy):
    """Returns the versions that a version policy asks for, in the form that `Versions` takes."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return ALL
    if choice == "specific":
        return set(policy.specific.versions)
    if policy.latest.num_versions > 1:
        raise ServingError(
            grpc.StatusCode.UNIMPLEMENTED,
            "Expected the version policy specific, all, or latest with one version. "
            f"Received: latest with {policy.latest.num_versions}. List them under specific.",
        )
    return LATEST
