"""Workers that come and go, by the command: on TensorFlow, and on JAX where that is the backend."""

import json
import os
import signal
import subprocess
import sys
import time

import h5py
import keras
import numpy as np
import pytest

pytestmark = pytest.mark.slow
SECONDS = 300  # for JAX, which compiles
ON_JAX = keras.backend.backend() == "jax"
# the command, on two logical devices where argv[1] is 2
TRAIN = """
import sys
from keras_transformer.cli import main
if sys.argv[1] == "2":
    import tensorflow as tf
    (cpu,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, devices)
sys.exit(main(sys.argv[2:]))
"""


def variables_of(worker, ports):
    if ON_JAX:
        values = f"localhost:{ports[0]}", str(len(ports)), str(worker)
        names = "COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"
        return {f"JAX_{name}": value for name, value in zip(names, values, strict=True)}
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    task = {"type": "worker", "index": worker}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


@pytest.fixture
def train_worker(tmp_path, sentence_pairs):
    """Starts a worker of two, or a process alone, that trains into `tmp_path / name`."""
    paths = [tmp_path / "pairs.en", tmp_path / "pairs.de"]
    for path, sentences in zip(paths, zip(*sentence_pairs, strict=True), strict=True):
        path.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    settings = "num_layers=1 d_model=16 ff_dim=24 num_heads=2 dropout=0".split()
    settings = [f"model.{each}" for each in settings]
    settings += ["tokenizer.vocab_size=150", "training.batch_tokens=96", "training.patience=0"]
    settings += ["training.checkpoint_every=4", "training.warmup_steps=4"]
    if ON_JAX:  # compiles each shape
        settings += ["training.static_shapes=5", "data.max_length=16", "decoding.max_length=4"]
    processes = []

    def start_worker(name, max_steps, worker=None, ports=(), devices=1):
        command = [devices, "train", "--output", tmp_path / name, "--max-steps", max_steps]
        command += ["--strategy", "mirrored"] if devices > 1 else []
        for split in ("train", "valid"):
            command += [f"--source-{split}", paths[0], f"--target-{split}", paths[1]]
        environment = dict(os.environ)
        if worker is not None:
            environment |= variables_of(worker, ports)
        command = [str(part) for part in [*command, "--set", *settings]]
        process = subprocess.Popen(
            [sys.executable, "-c", TRAIN, *command],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start_worker
    for process in processes:
        process.kill()


def curve(run):
    return [json.loads(line)["val_perplexity"] for line in (run / "metrics.jsonl").open()]


def weights(run, step):
    """Returns all weights but the biases of keys: softmax ignores them, their gradient is noise."""
    arrays = []

    def add(name, item):
        if isinstance(item, h5py.Dataset) and "key_projection/vars/1" not in name:
            arrays.append(np.ravel(item))

    with h5py.File(run / "checkpoints" / f"step-{step:08d}" / "model.weights.h5") as file:
        file.visititems(add)
    return np.concatenate(arrays)


def test_twenty_steps_of_two_workers_are_those_of_one_process(tmp_path, train_worker, free_ports):
    ports = free_ports(2)
    processes = [train_worker(f"run-{i}", 20, i, ports) for i in range(2)]
    processes.append(train_worker("alone", 20))
    for process in processes:
        assert process.wait(timeout=SECONDS) == 0, process.stderr.read()
    expected, found = (weights(tmp_path / name, 20) for name in ("alone", "run-0"))
    before = weights(tmp_path / "alone", 4)
    assert np.linalg.norm(expected - before) > 0.1
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.skipif(ON_JAX, reason="logical devices of TensorFlow")
def test_replicas_that_are_killed_go_on_as_one_device_would(tmp_path, train_worker):
    killed = train_worker("run", 12, devices=2)
    while not (tmp_path / "run" / "checkpoints" / "step-00000004").exists():
        assert killed.poll() is None, killed.stderr.read()
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert len(curve(tmp_path / "run")) < 4
    for name, devices in (("run", 2), ("alone", 1)):
        process = train_worker(name, 12, devices=devices)
        assert process.wait(timeout=SECONDS) == 0, process.stderr.read()
    np.testing.assert_allclose(curve(tmp_path / "run"), curve(tmp_path / "alone"), rtol=1e-3)


@pytest.mark.parametrize("lost", [0, 1], ids=["the chief", "the other"])
def test_a_worker_that_dies_stops_the_others_and_all_go_on(
    tmp_path, train_worker, free_ports, lost
):
    ports = free_ports(2)
    workers = [train_worker(f"run-{i}", 1000, i, ports) for i in range(2)]
    while len(list((tmp_path / "run-0" / "checkpoints").glob("step-*"))) < 2:
        assert workers[0].poll() is None, workers[0].stderr.read()
        time.sleep(0.1)
    workers[lost].kill()
    other = workers[1 - lost]
    code = other.wait(timeout=SECONDS)
    if ON_JAX and lost == 0 and code == -signal.SIGABRT:  # by JAX, where it is faster
        assert "JAX distributed service" in other.stderr.read()
    else:
        assert code == 1 and "another worker has stopped" in other.stderr.read()
    assert not (tmp_path / "run-1").exists()  # the chief alone writes

    newest = sorted((tmp_path / "run-0" / "checkpoints").glob("step-*"))[-1]
    max_steps = int(newest.name[5:]) + 8
    again = [train_worker(f"run-{i}", max_steps, i, ports) for i in range(2)]
    for worker in again:
        assert worker.wait(timeout=SECONDS) == 0, worker.stderr.read()
    alone = train_worker("alone", max_steps)
    assert alone.wait(timeout=SECONDS) == 0, alone.stderr.read()
    np.testing.assert_allclose(curve(tmp_path / "run-0"), curve(tmp_path / "alone"), rtol=1e-3)


def test_a_signal_to_one_worker_is_one_to_all(tmp_path, train_worker, free_ports):
    ports = free_ports(2)
    workers = [train_worker(f"run-{i}", 100_000, i, ports) for i in range(2)]
    while not (tmp_path / "run-0" / "checkpoints").exists():
        assert workers[0].poll() is None, workers[0].stderr.read()
        time.sleep(0.1)
    workers[1].terminate()
    for worker in workers:
        assert worker.wait(timeout=SECONDS) == 143
        assert "the work is saved" in worker.stderr.read()


def test_what_the_chief_refuses_ends_the_others(tmp_path, train_worker, free_ports):
    (tmp_path / "run-0").mkdir()
    (tmp_path / "run-0" / "thesis.txt").touch()
    ports = free_ports(2)
    workers = [train_worker(f"run-{i}", 10, i, ports) for i in range(2)]
    for worker in workers:
        assert worker.wait(timeout=SECONDS) == 2
        assert "which holds other files" in worker.stderr.read()
