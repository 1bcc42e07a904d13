"""Translates by gRPC; works with TensorFlow Serving and with `keras-transformer serve`.

    python client_grpc.py "A dog runs." "A cat sleeps." [--address HOST:PORT] [--model NAME]
        [--label LABEL]

Through the proxy of nginx.conf (the password is in TRANSLATOR_PASSWORD, or you are asked for it):

    python client_grpc.py "A dog runs." --address translate.example.org:8443 --tls --user NAME
        [--ca-file FILE]

Translations that begin with a text, and have terms (a tab between alternatives, ! before what they
must not say):

    python client_grpc.py "A dog runs." --prefix "Der " --term Vierbeiner --term '!rennt'

Needs `grpcio` and `tensorflow-serving-api`, which imports TensorFlow with its start-up messages.
"""

import argparse
import base64
import getpass
import os
import pathlib
import sys

import grpc
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def translate(channel, model, texts, label=None, timeout=35.0, metadata=(), prefix="", terms=()):
    """Returns a list of (translation, score, truncated), one for each text.

    Args:
        prefix, terms: what each translation begins with, and the forms that it must have.
    """
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    if label is not None:
        request.model_spec.version_label = label
    add_strings(request, "text", texts, len(texts))
    if prefix or terms:
        request.model_spec.signature_name = "constrained"
        add_strings(request, "prefix", [prefix] * len(texts), len(texts))
        add_strings(request, "terms", [*terms] * len(texts), len(texts), len(terms))
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    outputs = stub.Predict(request, timeout=timeout, metadata=metadata).outputs
    translations = [text.decode() for text in outputs["translation"].string_val]
    scores, truncated = outputs["score"].float_val, outputs["truncated"].bool_val
    return list(zip(translations, scores, truncated, strict=True))


def add_strings(request, name, strings, *shape):
    """Adds an input of a shape to a request."""
    tensor = request.inputs[name]
    tensor.dtype = types_pb2.DT_STRING
    for size in shape:
        tensor.tensor_shape.dim.add().size = size
    tensor.string_val.extend(string.encode() for string in strings)


def basic_authorization(user, password):
    """Returns the metadata of a call with HTTP basic authentication."""
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    return [("authorization", f"Basic {credentials}")]


def open_channel(address, tls=False, ca_file=None):
    """Returns a channel; with TLS, the system or `ca_file` must trust the server's certificate."""
    if not tls:
        return grpc.insecure_channel(address)
    trusted = None if ca_file is None else pathlib.Path(ca_file).read_bytes()
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="+")
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--model", default="translator")
    parser.add_argument(
        "--label", help="for example stable; without it the highest version answers"
    )
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--ca-file", metavar="FILE", help="certificate authority of the proxy")
    parser.add_argument("--user", metavar="NAME")
    parser.add_argument("--prefix", default="", metavar="TEXT")
    parser.add_argument("--term", action="append", default=[], metavar="FORM")
    arguments = parser.parse_args()
    if (arguments.user or arguments.ca_file) and not arguments.tls:
        parser.error("Expected --tls with --user and --ca-file. Add --tls.")
    metadata = ()
    if arguments.user:
        password = os.environ.get("TRANSLATOR_PASSWORD") or getpass.getpass()
        metadata = basic_authorization(arguments.user, password)
    try:
        with open_channel(arguments.address, arguments.tls, arguments.ca_file) as channel:
            answers = translate(
                channel,
                arguments.model,
                arguments.text,
                arguments.label,
                metadata=metadata,
                prefix=arguments.prefix,
                terms=arguments.term,
            )
    except grpc.RpcError as error:
        sys.exit(f"client_grpc.py: {error.code().name}: {error.details()}")
    except OSError as error:
        sys.exit(f"client_grpc.py: {error}")
    for translation, _, _ in answers:
        print(translation)


if __name__ == "__main__":
    main()
