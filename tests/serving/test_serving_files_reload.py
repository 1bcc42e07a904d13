"""reload_config.py with a server that checks labels and reads its file like TensorFlow Serving."""

import concurrent.futures
import pathlib

import grpc
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

SERVING_FILES = pathlib.Path(__file__).parents[2] / "export"


class FileReadingServer(
    model_service_pb2_grpc.ModelServiceServicer,
    prediction_service_pb2_grpc.PredictionServiceServicer,
):
    """TensorFlow Serving's rules for a reload, without models.

    With --allow_version_labels_for_unavailable_models, a label may move only to a version that is
    available; this is checked before anything is loaded. A reload does not wait for the loading.
    The file is read at the worst moments: just before and just after each reload.

    Attributes:
        path: of the file that is read.
        existing: versions whose directories exist.
        states: version to the name of its state.
        labels: label to version.
        served: labels after each change of them, the old ones first.
        texts: what the file held at each reading.
    """

    def __init__(self, path, existing, labels):
        self.path, self.existing, self.labels = path, existing, {}
        self.states, self.served, self.texts = {}, [], []
        self.fail = None
        self._set(text_format.Parse(path.read_text(), model_server_config_pb2.ModelServerConfig()))
        self._finish_loading()
        assert self.labels == labels

    def _set(self, config):
        (model,) = config.model_config_list.config
        for label, version in model.version_labels.items():
            moves = self.labels.get(label, version) != version
            if moves and self.states.get(version) != "AVAILABLE":
                raise ValueError(f"Request to assign label to version {version}")
        self.labels = dict(model.version_labels)
        if not self.served or self.served[-1] != self.labels:
            self.served.append(self.labels)
        wanted = set(model.model_version_policy.specific.versions) & self.existing
        for version in wanted:
            if self.states.get(version) != "AVAILABLE":
                self.states[version] = "LOADING"
        for version in set(self.states) - wanted:
            self.states[version] = "END"

    def _finish_loading(self):
        for version, state in self.states.items():
            self.states[version] = "AVAILABLE" if state == "LOADING" else state

    def read_file(self):
        self.texts.append(self.path.read_text())
        try:
            config = model_server_config_pb2.ModelServerConfig()
            self._set(text_format.Parse(self.texts[-1], config))
        except ValueError:
            pass  # TensorFlow Serving logs it

    def HandleReloadConfigRequest(self, request, context):
        self.read_file()
        if self.fail == "reload":
            context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        try:
            self._set(request.config)
        except ValueError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        self.read_file()
        return model_management_pb2.ReloadConfigResponse()

    def GetModelStatus(self, request, context):
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, state in self.states.items():
            number = get_model_status_pb2.ModelVersionStatus.State.Value(state)
            response.model_version_status.add(version=version, state=number)
        self.read_file()
        self._finish_loading()
        return response

    def GetModelMetadata(self, request, context):
        if request.model_spec.version_label not in self.labels:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Unrecognized servable version label")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.version.value = self.labels[request.model_spec.version_label]
        return response


@pytest.fixture
def path(tmp_path):
    """A configuration with version 1 for both labels, readable by all users."""
    path = tmp_path / "models.config"
    path.write_text((SERVING_FILES / "models.config").read_text())
    path.chmod(0o644)
    return path


@pytest.fixture
def start(path):
    """A function that starts a `FileReadingServer`; returns it and its address."""
    servers = []

    def start(existing):
        servicer = FileReadingServer(path, existing, {"stable": 1, "canary": 1})
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(servicer, server)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        servers.append(server)
        return servicer, address

    yield start
    for server in servers:
        server.stop(None)


@pytest.fixture
def reload(path, monkeypatch, program):
    """A function that runs the program on the file."""
    program = program("reload_config")
    monkeypatch.setattr(program, "STARTING_SECONDS", 0.5, raising=False)

    def reload(*flags):
        monkeypatch.setattr("sys.argv", ["reload_config.py", str(path), *flags])
        program.main()

    return reload


def labels_in(path):
    config = text_format.Parse(path.read_text(), model_server_config_pb2.ModelServerConfig())
    return dict(config.model_config_list.config[0].version_labels)


def test_reading_the_file_never_restores_the_old_configuration(path, start, reload):
    server, address = start({1, 2})
    reload("--address", address, "--stable", "1", "--canary", "2")
    server.read_file()
    # version 2 is loaded before a label names it, and the labels move once
    assert server.served == [{"stable": 1, "canary": 1}, {"stable": 1, "canary": 2}]
    reload("--address", address, "--stable", "2", "--canary", "1")
    server.read_file()
    reload("--address", address, "--stable", "1", "--canary", "2")
    server.read_file()
    assert server.served[2:] == [{"stable": 2, "canary": 1}, {"stable": 1, "canary": 2}]
    assert server.labels == labels_in(path)
    assert server.states == {1: "AVAILABLE", 2: "AVAILABLE"}


@pytest.mark.parametrize("existing, fail", [({1}, None), ({1, 2}, "reload")])
def test_the_old_file_is_put_back_when_the_server_refuses(path, start, reload, existing, fail):
    server, address = start(existing)
    server.fail = fail
    before = path.read_text()
    with pytest.raises(SystemExit, match="FAILED_PRECONDITION|UNAVAILABLE"):
        reload("--address", address, "--canary", "2")
    assert path.read_text() == before
    server.read_file()
    assert server.labels == {"stable": 1, "canary": 1} and server.states[1] == "AVAILABLE"


def test_readers_find_the_file_whole_and_may_still_read_it(path, start, reload):
    server, address = start({1, 2})
    file, before = path.with_name("file"), path.read_text()
    path.rename(file)
    path.symlink_to("file")
    with file.open() as reader:
        reload("--address", address, "--canary", "2")
        assert reader.read() == before  # the file was replaced, not written over
    assert path.is_symlink() and file.stat().st_mode & 0o777 == 0o644
    assert sorted(p.name for p in path.parent.iterdir()) == ["file", "models.config"]
    for text in server.texts:
        assert text_format.Parse(text, model_server_config_pb2.ModelServerConfig())


def test_a_server_that_does_not_run_finds_the_file_changed(path, reload, capsys):
    reload("--stable", "7", "--canary", "8", "--file-only")
    assert labels_in(path) == {"stable": 7, "canary": 8}
    assert "translator/labels/stable is version 7" in capsys.readouterr().out


def test_a_file_that_is_no_configuration_is_left_alone(path, reload):
    path.write_text("model_config_list {}")
    with pytest.raises(SystemExit, match="Expected a model_config_list of one model"):
        reload("--stable", "1")
    assert path.read_text() == "model_config_list {}"


def test_a_file_that_was_written_by_hand_stays_as_it_was_written(path, start, reload):
    server, address = start({1, 2})
    by_hand = path.read_text().replace("value: 1", "value: 2").replace("versions: 1", "versions: 2")
    path.write_text(f"# by hand\n{by_hand}")
    reload("--address", address)
    assert path.read_text() == f"# by hand\n{by_hand}"
    assert server.served == [{"stable": 1, "canary": 1}, {"stable": 2, "canary": 2}]
    assert server.states == {1: "END", 2: "AVAILABLE"}
