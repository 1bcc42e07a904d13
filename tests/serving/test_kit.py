"""The deployment kit: its files can be parsed, and its clients work with a server."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

KIT = pathlib.Path(__file__).parents[2] / "export"
if not KIT.exists():
    pytest.skip("the kit is not beside these tests", allow_module_level=True)


def run(program, *arguments):
    """Runs one of the kit's programs; returns its exit code and its output, or else its error."""
    command = [sys.executable, KIT / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout or done.stderr.strip().splitlines()[-1]


def test_models_config_serves_the_version_of_its_label():
    text = (KIT / "models.config").read_text()
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert model.name == "translator" and model.base_path == "/models/translator"
    labels = dict(model.version_labels)
    assert set(labels.values()) <= set(model.model_version_policy.specific.versions)
    assert set(labels) == {"stable", "canary"}


def test_batch_sizes_ascend_to_the_largest_execution():
    text = (KIT / "batching.config").read_text()
    sizes = [int(size) for size in re.findall(r"^allowed_batch_sizes: (\d+)", text, re.MULTILINE)]
    (largest,) = re.findall(r"^max_batch_size \{ value: (\d+) \}", text, re.MULTILINE)
    assert sizes == sorted(set(sizes)) and sizes[-1] == int(largest)


def test_compose_mounts_what_its_command_names():
    compose = yaml.safe_load((KIT / "compose.yaml").read_text())
    serving = compose["services"]["serving"]
    for flag in serving["command"]:
        assert not (found := re.search(r"=/config/(\S+)", flag)) or (KIT / found[1]).exists()
    assert all(port.startswith("127.0.0.1:") for port in serving["ports"])
    gpu = yaml.safe_load((KIT / "compose.gpu.yaml").read_text())["services"]["serving"]
    assert gpu["image"] == f"{serving['image']}-gpu"


def test_clients_translate(server):
    texts = ["A dog runs.", "A cat sleeps."]
    code, by_rest = run("client_rest.py", *texts, "--url", server.rest)
    assert code == 0 and len(by_rest.splitlines()) == 2
    code, by_grpc = run("client_grpc.py", *texts, "--address", server.grpc, "--model", server.name)
    assert (code, by_grpc) == (0, by_rest)


def test_clients_say_what_the_server_refuses(server):
    code, output = run("client_rest.py", "a", "--url", f"{server.rest}x")
    assert code == 1 and output.startswith("client_rest.py: 404: Servable not found")
    code, output = run("client_grpc.py", "a", "--address", server.grpc, "--model", "x")
    assert code == 1 and output.startswith("client_grpc.py: NOT_FOUND: Servable not found")


@pytest.mark.slow
def test_labels_move_in_a_running_server(server, tmp_path):
    config = tmp_path / "models.config"
    text = (KIT / "models.config").read_text().replace('"translator"', f'"{server.name}"')
    config.write_text(text)
    flags = [config, "--address", server.grpc]
    assert run("reload_config.py", *flags, "--canary", "1") == (
        0, f"{server.name}/labels/canary is version 1\n{server.name}/labels/stable is version 1\n",
    )  # fmt: skip
    code, by_rest = run("client_rest.py", "A dog runs.", "--url", f"{server.rest}/labels/canary")
    to_server = ["--label", "canary", "--model", server.name, "--address", server.grpc]
    assert code == 0 and run("client_grpc.py", "A dog runs.", *to_server) == (0, by_rest)
    before = config.read_text()
    code, output = run("reload_config.py", *flags, "--canary", "7")
    assert code == 1 and "FAILED_PRECONDITION" in output
    assert config.read_text() == before  # a refused change is not written
    code, output = run("reload_config.py", tmp_path / "none")
    assert code == 1 and "No such file" in output


def test_load_test_counts(server, tmp_path):
    with gzip.open(tmp_path / "text.gz", "wt") as text:
        text.write("A dog runs.\nA cat sleeps.\n")
    flags = ["--url", server.rest, "--clients", "3", "--seconds", "2"]
    code, output = run("load_test.py", tmp_path / "text.gz", *flags)
    result = json.loads(output)
    assert code == 0 and set(result["statuses"]) == {"200"} and result["p50_ms"] > 0


@pytest.fixture
def script(tmp_path):
    """A function that runs a copy of serve.sh with simulated programs instead of the real ones."""
    kit = shutil.copytree(KIT, tmp_path / "export", ignore=shutil.ignore_patterns("models"))
    programs = tmp_path / "bin"
    programs.mkdir()

    def call(**bodies):
        for name, body in bodies.items():
            program = programs / name.replace("_", "-")
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/calls"\n{body}\n')
            program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        command = [kit / "serve.sh", tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        return done, (tmp_path / "calls").read_text().splitlines(), kit

    return call


# reload_config.py is real if it only writes the file; this replaces the other programs
PYTHON = f"""case "$*" in
*--file-only*) exec {sys.executable} "$@" ;;
*) echo Ein Hund. ;;
esac"""


def test_script_exports_starts_and_asks(script):
    done, calls, kit = script(
        docker="", keras_transformer="echo models/translator/7", python3=PYTHON
    )
    assert done.returncode == 0, done.stderr
    assert [call.split()[0] for call in calls] == [
        "docker", "keras_transformer", "docker", "python3", "docker", "python3", "python3",
    ]  # fmt: skip
    assert "up --detach --wait" in calls[4] and "client_rest.py A dog runs" in calls[5]
    assert served(kit) == ([7], {"stable": 7, "canary": 7})
    (kit / "models" / "translator" / "7").mkdir(parents=True)
    done, _, _ = script(keras_transformer="echo models/translator/8")
    assert done.returncode == 0, done.stderr
    assert served(kit) == ([7, 8], {"stable": 7, "canary": 8})  # the stable version stays


def test_script_never_restarts_a_server_that_runs(script):
    done, calls, kit = script(
        docker='case "$*" in *ps*) echo 0a1b ;; esac',
        keras_transformer="echo models/translator/8",
        python3=PYTHON,
    )
    assert done.returncode == 0, done.stderr
    starts = [call for call in calls if " up " in call]
    assert all("--no-recreate" in call for call in starts)
    assert "python3 reload_config.py --canary 8 --stable 8" in calls
    assert served(kit) == ([1], {"stable": 1, "canary": 1})  # reload_config.py changes the file


def served(kit):
    """Returns the versions and the labels in the models.config of a copy."""
    text = (kit / "models.config").read_text()
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    return list(model.model_version_policy.specific.versions), dict(model.version_labels)


def test_script_says_what_goes_without_docker(script):
    done, calls, _ = script(docker="exit 1", keras_transformer="")
    assert done.returncode == 2 and len(calls) == 1
    assert re.search("keras-transformer serve /.*/models/translator", done.stderr)
