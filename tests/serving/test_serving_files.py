"""The files in export/ for a server in production: the clients and scripts work with a server."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

SERVING_FILES = pathlib.Path(__file__).parents[2] / "export"


def test_clients_translate(echo_server, run_program):
    texts = ["A dog runs.", "A cat sleeps."]
    command = [sys.executable, SERVING_FILES / "client_rest.py", *texts, "--url", echo_server.rest]
    by_rest = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (by_rest.returncode, by_rest.stdout) == (0, "A dog runs.\nA cat sleeps.\n")
    to_server = ["--address", echo_server.grpc, "--model", echo_server.name]
    assert run_program("client_grpc", *texts, *to_server) == by_rest.stdout


def test_clients_ask_for_prefixes_and_terms(echo_server, run_program):
    for name, server in (
        ("client_rest", ["--url", echo_server.rest]),
        ("client_grpc", ["--address", echo_server.grpc, "--model", echo_server.name]),
    ):
        texts = ["a dog", "a cat", *server]
        given = ["--prefix", "Der ", "--term", "Hund\tHut", "--term", "!Köter"]
        answers = "Der a dog Hund\tHut !Köter\nDer a cat Hund\tHut !Köter\n"
        assert run_program(name, *texts, *given) == answers
        assert run_program(name, *texts, "--prefix", "Ein ") == "Ein a dog \nEin a cat \n"


def test_clients_say_what_the_server_refuses(echo_server, run_program):
    message = run_program("client_rest", "a", "--url", f"{echo_server.rest}x")
    assert message.startswith("client_rest.py: 404: Servable not found")
    message = run_program("client_grpc", "a", "--address", echo_server.grpc, "--model", "x")
    assert message.startswith("client_grpc.py: NOT_FOUND: Servable not found")


def test_labels_move_in_a_running_server(start_echo_server, run_program, tmp_path):
    server, config = start_echo_server(), tmp_path / "models.config"
    shutil.copy(SERVING_FILES / "models.config", config)
    flags = [config, "--address", server.grpc]
    labels = "translator/labels/canary is version 1\ntranslator/labels/stable is version 1\n"
    assert run_program("reload_config", *flags, "--canary", "1") == labels
    by_label = ["A dog.", "--url", f"{server.rest}/labels/canary"]
    assert run_program("client_rest", *by_label) == "A dog.\n"
    by_label = ["A dog.", "--label", "canary", "--address", server.grpc]
    assert run_program("client_grpc", *by_label) == "A dog.\n"
    before = config.read_text()
    assert "FAILED_PRECONDITION" in run_program("reload_config", *flags, "--canary", "7")
    assert config.read_text() == before  # a refused change is not written
    assert "No such file" in run_program("reload_config", tmp_path / "none")


def test_load_test_counts(echo_server, run_program, tmp_path):
    with gzip.open(tmp_path / "text.gz", "wt") as text:
        text.write("A dog runs.\nA cat sleeps.\n")
    flags = ["--url", echo_server.rest, "--clients", "3", "--seconds", "0.3"]
    result = json.loads(run_program("load_test", tmp_path / "text.gz", *flags))
    assert set(result["statuses"]) == {"200"} and result["statuses"]["200"] >= 3
    assert 0 < result["p50_ms"] <= result["p99_ms"] < 60_000


@pytest.fixture
def script(tmp_path):
    """A function that runs a copy of serve.sh with simulated programs instead of the real ones."""
    copy = shutil.copytree(
        SERVING_FILES, tmp_path / "export", ignore=shutil.ignore_patterns("models")
    )
    programs = tmp_path / "bin"
    programs.mkdir()

    def call(**bodies):
        for name, body in bodies.items():
            program = programs / name.replace("_", "-")
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/calls"\n{body}\n')
            program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        command = [copy / "serve.sh", tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        return done, (tmp_path / "calls").read_text().splitlines(), copy

    return call


PYTHON = "echo Ein Hund."


def test_script_exports_starts_and_asks(script, run_program):
    done, calls, copy = script(
        docker="", keras_transformer="echo models/translator/7", python3=PYTHON
    )
    assert done.returncode == 0, done.stderr
    assert [call.split()[0] for call in calls] == [
        "docker", "keras_transformer", "docker", "python3", "docker", "python3", "python3",
    ]  # fmt: skip
    assert "up --detach --wait" in calls[4] and "client_rest.py A dog runs" in calls[5]
    _, name, *flags = calls[3].split()
    assert name == "reload_config.py" and flags[0] == "--file-only"
    run_program("reload_config", *flags, directory=copy)
    assert served(copy) == ([7], {"stable": 7, "canary": 7})
    (copy / "models" / "translator" / "7").mkdir(parents=True)
    done, calls, _ = script(keras_transformer="echo models/translator/8", python3=PYTHON)
    assert done.returncode == 0, done.stderr
    assert calls[-4] == "python3 reload_config.py --file-only --canary 8"  # 7 stays the stable one


def test_script_never_restarts_a_server_that_runs(script):
    done, calls, copy = script(
        docker='case "$*" in *ps*) echo 0a1b ;; esac',
        keras_transformer="echo models/translator/8",
        python3=PYTHON,
    )
    assert done.returncode == 0, done.stderr
    starts = [call for call in calls if " up " in call]
    assert all("--no-recreate" in call for call in starts)
    assert "python3 reload_config.py --canary 8 --stable 8" in calls
    assert served(copy) == ([1], {"stable": 1, "canary": 1})  # reload_config.py changes the file


def served(copy):
    """Returns the versions and the labels in the models.config of a copy."""
    text = (copy / "models.config").read_text()
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    return list(model.model_version_policy.specific.versions), dict(model.version_labels)


def test_script_without_docker_says_what_to_run_instead(script):
    done, calls, _ = script(docker="exit 1", keras_transformer="")
    assert done.returncode == 2 and len(calls) == 1
    assert re.search("keras-transformer serve /.*/models/translator", done.stderr)
