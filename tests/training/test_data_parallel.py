"""JAX, on several devices: the road to TPUs. Each process has devices of its own."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="tests JAX's devices")


@pytest.fixture(scope="module")
def results(tmp_path_factory, corpus, tokenizer, steps_program, write_batches):
    folder = tmp_path_factory.mktemp("steps")
    write_batches(folder / "batches.npz", corpus, tokenizer, static_shapes=True)
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
