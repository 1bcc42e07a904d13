"""The compose files and Kubernetes manifests of the kit, held to their schemas."""

import pathlib
import subprocess
import sys

import pytest
import yaml

KIT = pathlib.Path(__file__).parents[2] / "export"
if not KIT.exists():
    pytest.skip("the kit is not beside these tests", allow_module_level=True)


def serving(name):
    """Returns the one service of a compose file."""
    return yaml.safe_load((KIT / name).read_text())["services"]["serving"]


def test_compose_files_follow_the_specification(tmp_path):
    pytest.importorskip("check_jsonschema", reason="it brings the schema: pip install '.[dev]'")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    files = [KIT / "compose.yaml", KIT / "compose.gpu.yaml"]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(files[0].read_text().replace("read_only: true", "readonly: true"))
    done = subprocess.run([*command, wrong], capture_output=True, text=True)
    assert done.returncode == 1 and "readonly" in done.stdout


def test_compose_bounds_what_the_server_may_do_and_take():
    service = serving("compose.yaml")
    limits = service["deploy"]["resources"]["limits"]
    assert {"cpus", "memory", "pids"} <= set(limits)
    assert {"max-size", "max-file"} <= set(service["logging"]["options"])
    user, group = service["user"].split(":")
    assert user != "0" and group != "0"
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert "AVAILABLE" in service["healthcheck"]["test"][-1]
    # what compose.gpu.yaml says of the same resources is merged key by key
    assert set(serving("compose.gpu.yaml")["deploy"]["resources"]) == {"reservations"}
