"""Has a running server serve the versions and labels of `models.config`, without a restart.

    python reload_config.py [FILE] [--address HOST:PORT] [--stable N] [--canary N]

`--stable` and `--canary` write the versions into the file first. TensorFlow Serving and
`keras-transformer serve` take it alike; the latter has one model and leaves `base_path` unread.
Needs `grpcio` and `tensorflow-serving-api`.
"""

import argparse
import pathlib
import sys

import grpc
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

CONFIG = pathlib.Path(__file__).parent / "models.config"
COMMENT = '# Which versions are served, and by which labels: README.md, "Another version".\n'


def point_labels(config, labels):
    """Gives the model's labels other versions, and serves those and no others."""
    (model,) = config.model_config_list.config
    for label, version in labels.items():
        model.version_labels[label] = version
    specific = model.model_version_policy.specific
    specific.versions[:] = sorted(set(model.version_labels.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--stable", type=int, metavar="N")
    parser.add_argument("--canary", type=int, metavar="N")
    arguments = parser.parse_args()
    labels = {"stable": arguments.stable, "canary": arguments.canary}
    labels = {label: version for label, version in labels.items() if version is not None}

    request = model_management_pb2.ReloadConfigRequest()
    try:
        text_format.Parse(arguments.file.read_text(), request.config)
        if labels:
            point_labels(request.config, labels)
        with grpc.insecure_channel(arguments.address) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            stub.HandleReloadConfigRequest(request, timeout=600)
    except grpc.RpcError as error:
        sys.exit(f"reload_config.py: {error.code().name}: {error.details()}")
    except (OSError, ValueError, text_format.ParseError) as error:
        sys.exit(f"reload_config.py: {error}")
    if labels:
        arguments.file.write_text(COMMENT + text_format.MessageToString(request.config))
    (model,) = request.config.model_config_list.config
    for label, version in sorted(model.version_labels.items()):
        print(f"{model.name}/labels/{label} is version {version}")


if __name__ == "__main__":
    main()
