"""The configuration, compose files and Kubernetes manifests in export/ agree, and are valid."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import pytest
import requests
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from keras_transformer.cli import serve
from keras_transformer.serving.metrics import Metrics

SERVING_FILES = pathlib.Path(__file__).parents[2] / "export"


def serving(name):
    """Returns the only service of a compose file."""
    return yaml.safe_load((SERVING_FILES / name).read_text())["services"]["serving"]


def test_compose_files_follow_the_specification(tmp_path):
    pytest.importorskip("check_jsonschema", reason="it brings the schema: pip install '.[dev]'")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    files = [SERVING_FILES / "compose.yaml", SERVING_FILES / "compose.gpu.yaml"]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(files[0].read_text().replace("read_only: true", "readonly: true"))
    done = subprocess.run([*command, wrong], capture_output=True, text=True)
    assert done.returncode == 1 and "readonly" in done.stdout


def test_the_configuration_fits_compose():
    text = (SERVING_FILES / "models.config").read_text()
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    labels = dict(model.version_labels)
    assert set(labels) == {"stable", "canary"}
    assert set(labels.values()) <= set(model.model_version_policy.specific.versions)
    service = serving("compose.yaml")
    assert any(f":{model.base_path.rpartition('/')[0]}" in str(v) for v in service["volumes"])
    for flag in service["command"]:
        found = re.search(r"=/config/(\S+)", flag)
        assert not found or (SERVING_FILES / found[1]).exists()
    text = (SERVING_FILES / "batching.config").read_text()
    sizes = [int(size) for size in re.findall(r"^allowed_batch_sizes: (\d+)", text, re.MULTILINE)]
    (largest,) = re.findall(r"^max_batch_size \{ value: (\d+) \}", text, re.MULTILINE)
    assert sizes == sorted(set(sizes)) and sizes[-1] == int(largest)


def test_compose_limits_rights_and_resources_of_the_server():
    service = serving("compose.yaml")
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert serving("compose.gpu.yaml")["image"] == f"{service['image']}-gpu"
    limits = service["deploy"]["resources"]["limits"]
    assert {"cpus", "memory", "pids"} <= set(limits)
    assert {"max-size", "max-file"} <= set(service["logging"]["options"])
    user, group = service["user"].split(":")
    assert user != "0" and group != "0"
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert "AVAILABLE" in service["healthcheck"]["test"][-1]
    # compose.gpu.yaml is merged key by key
    assert set(serving("compose.gpu.yaml")["deploy"]["resources"]["limits"]) == {"memory"}


MANIFESTS = sorted((SERVING_FILES / "kubernetes").glob("*.yaml"))


def manifest(kind):
    """Returns the only manifest of a kind."""
    documents = [yaml.safe_load(path.read_text()) for path in MANIFESTS]
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def container():
    """Returns the container of the Deployment."""
    (found,) = manifest("Deployment")["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_follow_their_schemas(path, version):
    document = yaml.safe_load(path.read_text())
    kubernetes_validate.validate(document, version, strict=True)
    document["spec"]["unknown"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, version, strict=True)


def test_manifests_refer_to_files_and_names_that_exist():
    kustomization = yaml.safe_load((SERVING_FILES / "kustomization.yaml").read_text())
    assert sorted(SERVING_FILES / name for name in kustomization["resources"]) == MANIFESTS
    (generated,) = kustomization["configMapGenerator"]
    pod = manifest("Deployment")["spec"]["template"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == generated["name"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert set(mounted) == set(volumes)
    for flag in container()["args"]:
        assert "=/config/" not in flag or flag.rpartition("/")[2] in generated["files"]
    labels = pod["metadata"]["labels"]
    assert manifest("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    for port in manifest("Service")["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]
    target = manifest("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", "translator")
    assert "replicas" not in manifest("Deployment")["spec"]  # the autoscaler sets it


def test_the_pods_run_the_server_of_compose():
    service, pod = serving("compose.yaml"), container()
    assert (pod["image"], pod["command"]) == (service["image"], service["entrypoint"])
    # a new models.config makes new pods there, so they need not read it again
    flags = [flag for flag in service["command"] if "poll_wait" not in flag]
    assert pod["args"] == flags
    assert pod["securityContext"]["readOnlyRootFilesystem"]
    security = manifest("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == service["user"]


def probed(echo_server, name, model=None):
    """Returns the status that a probe of the Deployment gets from a server."""
    path = container()[name]["httpGet"]["path"]
    origin = echo_server.rest.partition("/v1/")[0]
    path = path.replace("/translator", f"/{model or echo_server.name}")
    return requests.get(origin + path, timeout=60).status_code


@pytest.mark.parametrize("name", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_a_server_that_serves_answers_the_probes(echo_server, name):
    assert probed(echo_server, name) == 200
    if name != "livenessProbe":  # while no version is available
        assert probed(echo_server, name, f"{echo_server.name}/versions/9") == 404


def test_the_health_check_of_compose_knows_a_server_that_serves(echo_server):
    shell, flag, script = serving("compose.yaml")["healthcheck"]["test"][1:]
    address = re.match("http://([^:/]+):([0-9]+)/", echo_server.rest)
    script = script.replace("127.0.0.1/8501", "/".join(address.groups()))
    for model, code in ((echo_server.name, 0), ("x", 1)):
        command = [shell, flag, script.replace("/translator ", f"/{model} ")]
        assert subprocess.run(command, timeout=60).returncode == code


def dockerfile():
    """Returns the instructions of the Dockerfile, a list of (name, arguments)."""
    text = (SERVING_FILES / "Dockerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", "").splitlines()
    return [line.split(maxsplit=1) for line in lines if line]


def test_the_image_of_the_embedded_server_is_built_from_files_that_exist():
    copied = [line.split()[:-1] for name, line in dockerfile() if name == "COPY"]
    assert sum(map(len, copied)) >= 3
    for name in (name for names in copied for name in names):
        assert (SERVING_FILES.parent / name).exists(), name
    (user,) = [line for name, line in dockerfile() if name == "USER"]
    assert user == serving("compose.yaml")["user"]


def test_the_image_starts_the_server_with_flags_that_it_has():
    (line,) = [line for name, line in dockerfile() if name == "ENTRYPOINT"]
    program, *flags = json.loads(line)
    assert program == "keras-transformer"
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    arguments = parser.parse_args([*flags[1:], "--label", "stable=1"])
    assert (flags[0], arguments.directory) == ("serve", "/models/translator")
    assert (arguments.host, arguments.port, arguments.grpc_port) == ("0.0.0.0", 8501, 8500)


def test_the_health_check_of_the_image_knows_a_server_that_serves(echo_server):
    (line,) = [line for name, line in dockerfile() if name == "HEALTHCHECK"]
    _, flag, program = json.loads(line.partition("CMD ")[2])
    program = program.replace("http://127.0.0.1:8501", echo_server.base)
    for model, code in ((echo_server.name, 0), ("x", 1)):
        command = [sys.executable, flag, program.replace("/translator/", f"/{model}/")]
        assert subprocess.run(command, capture_output=True, timeout=60).returncode == code


def test_the_dashboard_shows_metrics_that_the_server_has():
    dashboard = json.loads((SERVING_FILES / "grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for text in expressions for name in re.findall(r":tensorflow:[\w:]+", text)}
    metrics = Metrics("m")
    metrics.count("OK", "REST", "Predict", 0.1)
    metrics.count_load("OK")
    page = metrics.page().decode()
    assert len(names) >= 6
    for name in names:
        assert re.search(rf"^{name}[{{ ]", page, re.MULTILINE), name
    for text in expressions:
        assert text.count("(") == text.count(")") and text.count("{") == text.count("}")
