"""The compose files and Kubernetes manifests of the kit fit their schemas."""

import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import pytest
import requests
import yaml

KIT = pathlib.Path(__file__).parents[2] / "export"
if not KIT.exists():
    pytest.skip("the kit is not beside these tests", allow_module_level=True)


def serving(name):
    """Returns the only service of a compose file."""
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
    # compose.gpu.yaml is merged key by key
    assert set(serving("compose.gpu.yaml")["deploy"]["resources"]["limits"]) == {"memory"}


MANIFESTS = sorted((KIT / "kubernetes").glob("*.yaml"))


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


def test_manifests_name_what_there_is():
    kustomization = yaml.safe_load((KIT / "kustomization.yaml").read_text())
    assert sorted(KIT / name for name in kustomization["resources"]) == MANIFESTS
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


def probed(server, name, model=None):
    """Returns the status that a probe of the Deployment gets from a server."""
    path = container()[name]["httpGet"]["path"]
    origin = server.rest.partition("/v1/")[0]
    path = path.replace("/translator", f"/{model or server.name}")
    return requests.get(origin + path, timeout=60).status_code


@pytest.mark.parametrize("name", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_a_server_that_serves_answers_the_probes(server, name):
    assert probed(server, name) == 200
    if name != "livenessProbe":  # while no version is available
        assert probed(server, name, f"{server.name}/versions/9") == 404


def test_the_health_check_of_compose_knows_a_server_that_serves(server):
    shell, flag, script = serving("compose.yaml")["healthcheck"]["test"][1:]
    address = re.match("http://([^:/]+):([0-9]+)/", server.rest)
    script = script.replace("127.0.0.1/8501", "/".join(address.groups()))
    for model, code in ((server.name, 0), ("x", 1)):
        command = [shell, flag, script.replace("/translator ", f"/{model} ")]
        assert subprocess.run(command, timeout=60).returncode == code
