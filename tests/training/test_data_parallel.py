"""JAX, on several devices: the road to TPUs. Each program has devices of its own."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer.errors import InputError
from keras_transformer.training.distribution import start

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="tests JAX's devices")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, corpus, tokenizer, write_batches):
    folder = tmp_path_factory.mktemp("steps")
    write_batches(folder / "batches.npz", corpus, tokenizer, static_shapes=5)
    return folder


@pytest.fixture(scope="module")
def results(folder, steps_program):
    for devices in (1, 4):
        flags = f"--xla_force_host_platform_device_count={devices}"
        cases = json.dumps(
            {
                "sgd": {},
                "averages": {"optimizer": "averaging"},
                "small": {"small": True},
                "small in parts": {"small": True, "parts": 2},
            }
        )
        arguments = ["auto", "1", folder / "batches.npz", cases, folder / f"{devices}.npz"]
        done = subprocess.run(
            [sys.executable, steps_program, *arguments],
            env={**os.environ, "XLA_FLAGS": flags},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    return {devices: dict(np.load(folder / f"{devices}.npz")) for devices in (1, 4)}


def test_ten_steps_are_those_of_one_device(results):
    whole, divided = results[1], results[4]
    assert (whole["replicas"], divided["replicas"]) == (1, 4)
    error = np.linalg.norm(divided["sgd/end"] - whole["sgd/end"])
    assert error < 1e-5 * np.linalg.norm(whole["sgd/end"])
    assert np.linalg.norm(whole["sgd/end"] - whole["sgd/start"]) > 0.1
    np.testing.assert_allclose(divided["sgd/loss"], whole["sgd/loss"], rtol=1e-5)


def test_ten_steps_in_parts_on_each_device_are_those_of_one_device(results):
    expected, found = results[1]["small/end"], results[4]["small in parts/end"]
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("devices", [1, 4])
def test_the_moving_average_is_that_of_the_steps(results, devices):
    expected = 0.0
    for step, weights in enumerate(results[devices]["averages/steps"].astype("float64"), start=1):
        decay = min(0.7, (step - 1) / (step + 8))
        expected = decay * expected + (1 - decay) * weights
    np.testing.assert_allclose(results[devices]["averages/averages"], expected, atol=1e-6)


def test_ten_steps_of_two_processes_are_those_of_one(results, folder, steps_program, free_ports):
    cases = json.dumps({"small": {"small": True}, "parts": {"small": True, "parts": 2}})
    (port,) = free_ports(1)
    cluster = {"JAX_COORDINATOR_ADDRESS": f"localhost:{port}", "JAX_NUM_PROCESSES": "2"}
    outputs = [folder / f"process-{i}.npz" for i in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, steps_program, "auto", "1", folder / "batches.npz", cases, output],
            env={**os.environ, **cluster, "JAX_PROCESS_ID": str(i)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, output in enumerate(outputs)
    ]
    for process in processes:
        _, messages = process.communicate(timeout=600)
        assert process.returncode == 0, messages
    for found in map(np.load, outputs):
        assert found["replicas"] == 2
        for case in ("small", "parts"):
            end, whole = found[f"{case}/end"], results[1]["small/end"]
            assert np.linalg.norm(end - whole) < 1e-5 * np.linalg.norm(whole)
        np.testing.assert_allclose(found["small/loss"], results[1]["small/loss"], rtol=1e-5)


@pytest.mark.parametrize(
    "address, number, process",
    [
        ("localhost", "2", "0"),
        ("localhost:port", "2", "0"),
        ("localhost:70000", "2", "0"),
        ("localhost:1234", None, "0"),
        ("localhost:1234", "2", None),
        ("localhost:1234", "two", "0"),
        ("localhost:1234", "2", "2"),
        ("localhost:1234", "2", "-1"),
    ],
)
def test_what_is_no_cluster_is_refused(monkeypatch, address, number, process):
    names = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
    for name, value in zip(names, (address, number, process), strict=True):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    for strategy in ("auto", "multi_worker"):
        message = f"Received: JAX_COORDINATOR_ADDRESS={address}, JAX_NUM_PROCESSES={number}, "
        with pytest.raises(InputError, match=message):
            start(strategy)


def test_a_first_process_that_does_not_answer(monkeypatch, free_ports):
    from keras_transformer.training import jax_distribution

    (port,) = free_ports(1)
    monkeypatch.setattr(jax_distribution, "CONNECT_SECONDS", 0.1)
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", f"localhost:{port}")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    lines = []
    with pytest.raises(InputError, match=f"localhost:{port}, and in 0.1 seconds: .*refused"):
        start("auto", lines.append)
    assert lines == ["workers     waiting for all 2"]


def test_a_cluster_of_one_is_one_device(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost:1")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "1")
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    assert str(start("auto")) == "one device"
