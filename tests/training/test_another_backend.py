"""A run that was begun on one backend goes on with another, with the same losses."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from keras_transformer.config import Config

BACKENDS = "jax", "tensorflow", "torch"


def train(settings, output, num_steps, backend):
    """Trains in a process of its own; returns the loss of the last steps and of the validation."""
    limit = f"training.max_steps={num_steps}"
    process = subprocess.run(
        [sys.executable, "-m", "keras_transformer", "train", "--config", settings]
        + ["--output", output, "--set", limit],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    records = [json.loads(line) for line in (output / "metrics.jsonl").open()]
    (record,) = (each for each in records if each["step"] == num_steps and "weights" not in each)
    return record["loss"], record["val_loss"]


@pytest.mark.slow
def test_a_run_goes_on_with_another_backend(config, tmp_path):
    for module in ("jax", "torch"):
        pytest.importorskip(module, reason="the extra `test-backends` is missing")
    settings = tmp_path / "settings.yaml"
    config.override(["model.dropout=0"]).save(settings)
    first = train(settings, tmp_path / "begun", 2, BACKENDS[0])
    losses = {}
    for backend in BACKENDS:
        run = shutil.copytree(tmp_path / "begun", tmp_path / backend)
        losses[backend] = train(settings, run, 4, backend)
    whole = losses[BACKENDS[0]]
    assert whole[0] < first[0] and whole[1] < first[1]
    assert Config.load(tmp_path / "begun/config.yaml").training.static_shapes == 5  # that of JAX
    assert losses == {backend: pytest.approx(whole, rel=1e-4) for backend in BACKENDS}
