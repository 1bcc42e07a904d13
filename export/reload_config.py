"""Makes a running server serve the versions and labels of `models.config`, without a restart.

    python reload_config.py [FILE] [--address HOST:PORT] [--stable N] [--canary N] [--file-only]

`--stable` and `--canary` first change the versions in the file. The program works with TensorFlow
Serving and with `keras-transformer serve`, which has one model and ignores `base_path`.
Needs `grpcio` and `tensorflow-serving-api`.

TensorFlow Serving refuses a label for a version that is not loaded, and then loads nothing. So a
version that is not available yet is loaded first while the labels stay, and the labels move when
the version can answer.

TensorFlow Serving also reads the file every few seconds, and serves what it finds. So each step is
written to the file before the server is told. Whenever the server reads the file, it finds the
latest step that it was told, or the next one, and never an older one. (A read that began just
before the file was replaced can still take effect after the call, until the next read.) If a step
fails, the old file is restored, and the server is told to serve it again.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import sys
import time

import grpc
from google.protobuf import text_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

CONFIG = pathlib.Path(__file__).parent / "models.config"
COMMENT = '# Which versions are served, and by which labels: README.md, "Another version".\n'
RPC_SECONDS = 600
LOADING_SECONDS = 600
"""Maximum seconds until versions are available."""
STARTING_SECONDS = 5
"""Maximum seconds until a server starts to load an existing version."""
State = get_model_status_pb2.ModelVersionStatus.State


class Server:
    """A running server; gRPC calls read and change what it serves."""

    def __init__(self, channel, model):
        self._models = model_service_pb2_grpc.ModelServiceStub(channel)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._model = model

    def reload(self, config):
        request = model_management_pb2.ReloadConfigRequest(config=config)
        self._models.HandleReloadConfigRequest(request, timeout=RPC_SECONDS)

    def states(self):
        """Returns a dict from version to its state."""
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = self._model
        status = self._models.GetModelStatus(request, timeout=RPC_SECONDS)
        return {version.version: version.state for version in status.model_version_status}

    def available(self):
        """Returns the set of versions that can answer."""
        return {number for number, state in self.states().items() if state == State.AVAILABLE}

    def version_of(self, label):
        """Returns the version that a label names in the server, or None."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name, request.model_spec.version_label = self._model, label
        try:
            metadata = self._predictions.GetModelMetadata(request, timeout=RPC_SECONDS)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND):
                return None
            raise
        return metadata.model_spec.version.value

    def wait_for(self, versions):
        """Waits until the versions are available, or until it is clear that they will not be."""
        start = time.monotonic()
        while time.monotonic() < start + LOADING_SECONDS:
            states = self.states()
            missing = {n for n in versions if states.get(n) != State.AVAILABLE}
            loading = {n for n in missing if states.get(n) in (State.START, State.LOADING)}
            if not missing or (missing != loading and time.monotonic() > start + STARTING_SECONDS):
                return
            time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--stable", type=int, metavar="N")
    parser.add_argument("--canary", type=int, metavar="N")
    parser.add_argument(
        "--file-only", action="store_true", help="for a server that does not run yet"
    )
    arguments = parser.parse_args()
    labels = {"stable": arguments.stable, "canary": arguments.canary}
    labels = {label: version for label, version in labels.items() if version is not None}
    try:
        config = parse(arguments.file.read_text())
        model = only_model(config)
        if labels:
            point_labels(model, labels)
        if arguments.file_only:
            replace(arguments.file, as_text(config))
        else:
            with grpc.insecure_channel(arguments.address) as channel:
                apply(config, arguments.file, Server(channel, model.name))
    except grpc.RpcError as error:
        sys.exit(f"reload_config.py: {error.code().name}: {error.details()}")
    except (OSError, ValueError) as error:
        sys.exit(f"reload_config.py: {error}")
    for label, version in sorted(model.version_labels.items()):
        print(f"{model.name}/labels/{label} is version {version}")


def parse(text):
    """Parses the text of a configuration.

    Raises:
        ValueError: the text is not a configuration, or not of exactly one model.
    """
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise ValueError(f"Expected a ModelServerConfig. Received: {error}") from error
    if (number := len(config.model_config_list.config)) != 1:
        raise ValueError(f"Expected a model_config_list of one model. Received: {number} models")
    return config


def only_model(config):
    return config.model_config_list.config[0]


def point_labels(model, labels):
    """Moves labels of the model to other versions; only labelled versions are served."""
    for label, version in labels.items():
        model.version_labels[label] = version
    specific = model.model_version_policy.specific
    specific.versions[:] = sorted(set(model.version_labels.values()))


def apply(config, path, server):
    """Makes the server serve a configuration, and writes it; restores the old one on failure."""
    old_text = path.read_text()
    old = parse(old_text)
    steps = plan(config, server)
    try:
        for step in steps:
            # keeps a file that was edited by hand unchanged if possible
            replace(path, old_text if step == old else as_text(step))
            server.reload(step)
            server.wait_for(only_model(step).model_version_policy.specific.versions)
    except BaseException:  # Ctrl-C too
        replace(path, old_text)
        with contextlib.suppress(grpc.RpcError):
            server.reload(old)
        raise


def plan(config, server):
    """Returns the configurations for each step from the served one to the wanted one."""
    labels = only_model(config).version_labels
    available = server.available()
    if set(labels.values()) <= available:
        return [config]
    loading = model_server_config_pb2.ModelServerConfig()
    loading.CopyFrom(config)
    model = only_model(loading)
    specific = model.model_version_policy.specific
    specific.versions[:] = sorted(available | set(labels.values()))
    now = {label: server.version_of(label) for label in labels}
    model.version_labels.clear()
    model.version_labels.update({label: n for label, n in now.items() if n is not None})
    return [loading, config]


def as_text(config):
    return COMMENT + text_format.MessageToString(config)


def replace(path, text):
    """Replaces a file atomically: a reader finds either the old text or the new one."""
    path = path.resolve()  # a link stays a link
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with open(partial, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
