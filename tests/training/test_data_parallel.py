"""JAX, on several devices: the road to TPUs. Each process has devices of its own."""

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
        arguments = ["auto", "1", folder / "batches.npz", '{"sgd": {}}', folder / f"{devices}.npz"]
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
