"""Warm-up requests, which a server answers before it reports that a version is ready."""

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

WARMUP_REQUESTS = "assets.extra/tf_serving_warmup_requests"
"""Where TensorFlow Serving looks for them, in the directory of a version."""


def write_warmup_requests(path, requests):
    """Writes the requests that a server answers when it loads a version, at most 1,000.

    Args:
        path: `pathlib.Path` of the version's directory.
        requests: list of (name of a signature, dict from input name to array or list).
    """
    file = path / WARMUP_REQUESTS
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature_name, inputs in requests:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = signature_name
            for name, values in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
            log = prediction_log_pb2.PredictLog(request=request)
            record = prediction_log_pb2.PredictionLog(predict_log=log)
            writer.write(record.SerializeToString())
