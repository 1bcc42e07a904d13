"""Status and metadata of versions as TensorFlow Serving's protocol buffers."""

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_pb2


def model_spec(model_name, version, signature_name=""):
    spec = model_pb2.ModelSpec(name=model_name, signature_name=signature_name)
    spec.version.value = version.number
    return spec


def signatures(version):
    """Returns the `SignatureDefMap` of an available version."""
    return get_model_metadata_pb2.SignatureDefMap(signature_def=version.model.signature_defs)


def status(versions):
    """Returns the `GetModelStatusResponse` for a list of `Version`s."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in versions:
        added = response.model_version_status.add(version=version.number)
        added.state = get_model_status_pb2.ModelVersionStatus.State.Value(version.state)
        if version.error is not None:
            added.status.error_code = version.error.code.value[0]
            added.status.error_message = str(version.error)
        else:
            added.status.SetInParent()
    return response
