"""Translates by gRPC; works with TensorFlow Serving and with `keras-transformer serve`.

    python client_grpc.py "A dog runs." "A cat sleeps." [--address HOST:PORT] [--model NAME]
        [--label LABEL]

Needs `grpcio` and `tensorflow-serving-api`, whose messages bring TensorFlow with them, and its
start-up lines.
"""

import argparse
import sys

import grpc
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def translate(channel, model, texts, label=None, timeout=35.0):
    """Returns a list of (translation, score, truncated), one for each text."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    if label is not None:
        request.model_spec.version_label = label
    tensor = request.inputs["text"]
    tensor.dtype = types_pb2.DT_STRING
    tensor.tensor_shape.dim.add().size = len(texts)
    tensor.string_val.extend(text.encode() for text in texts)
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    outputs = stub.Predict(request, timeout=timeout).outputs
    translations = [text.decode() for text in outputs["translation"].string_val]
    scores, truncated = outputs["score"].float_val, outputs["truncated"].bool_val
    return list(zip(translations, scores, truncated, strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="+")
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--model", default="translator")
    parser.add_argument("--label", help="as stable; without it the highest version answers")
    arguments = parser.parse_args()
    with grpc.insecure_channel(arguments.address) as channel:
        try:
            answers = translate(channel, arguments.model, arguments.text, arguments.label)
        except grpc.RpcError as error:
            sys.exit(f"client_grpc.py: {error.code().name}: {error.details()}")
    for translation, _, _ in answers:
        print(translation)


if __name__ == "__main__":
    main()
