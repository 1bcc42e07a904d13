"""The choice of devices, the dealing of batches, and workers that come and go."""

import json
import os
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.training.distribution import Distribution, start
from keras_transformer.training.tensorflow_distribution import (
    TensorFlowDistribution,
    config_from_slurm,
)

CLUSTER = {"worker": ["localhost:1", "localhost:2"]}
# the command, on two logical devices where argv[1] is 2
TRAIN = """
import sys
import tensorflow as tf
from keras_transformer.cli import main
(cpu,) = tf.config.list_physical_devices("CPU")
devices = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv[1])
tf.config.set_logical_device_configuration(cpu, devices)
sys.exit(main(sys.argv[2:]))
"""


def test_one_device_where_nothing_else_is_there(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for strategy in ("auto", "one"):
        devices = start(strategy)
        assert (devices.strategy, devices.num_replicas, devices.is_chief) == (None, 1, True)
        assert str(devices) == "one device"


def test_a_cluster_of_one_is_one_device(monkeypatch):
    config = {"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert start("auto").strategy is None


@pytest.mark.parametrize(
    "strategy, tf_config, message",
    [
        ("many", None, "auto, one, mirrored, multi_worker, tpu. Received: strategy='many'"),
        ("tpu", None, "Expected a TPU"),
        ("multi_worker", None, "Expected a description of the workers"),
        ("auto", "{", "Expected TF_CONFIG to be a JSON object"),
        ("auto", "[]", "Expected TF_CONFIG to be a JSON object"),
        ("auto", '{"cluster": []}', "Expected TF_CONFIG to be a JSON object"),
        ("auto", '{"cluster": {"worker": 3}}', "Expected TF_CONFIG to be a JSON object"),
        ("auto", '{"task": {"index": "a"}}', "Expected TF_CONFIG to be a JSON object"),
        ("auto", {"cluster": CLUSTER}, "name this process among the workers"),
        (
            "multi_worker",
            {"cluster": CLUSTER, "task": {"type": "worker", "index": 2}},
            "name this process among the workers",
        ),
    ],
)
def test_what_is_no_cluster_is_refused(monkeypatch, strategy, tf_config, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if tf_config is not None:
        text = tf_config if isinstance(tf_config, str) else json.dumps(tf_config)
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="Received") as raised:
        start(strategy)
    assert message in str(raised.value)


@pytest.mark.parametrize("size", [0, 1000, 2**18, 600_000])
def test_what_the_chief_makes_arrives_in_parts(monkeypatch, size):
    """Of parts of few bytes, which are integers on their way: labels can be gigabytes."""
    value, sent = np.random.default_rng(1).bytes(size), []
    devices = TensorFlowDistribution()
    devices.num_workers = 2
    monkeypatch.setattr(devices, "total", lambda array: sent.append(array) or array)
    assert devices.from_chief(lambda: value) == value
    assert all(array.size <= 2**18 for array in sent)

    def receive(array):  # 0 from every other worker
        assert (array.shape, array.dtype) == (sent[0].shape, sent[0].dtype) and not array.any()
        return sent.pop(0)

    devices.is_chief = False
    monkeypatch.setattr(devices, "total", receive)
    assert devices.from_chief(lambda: None) == value and not sent


def test_slurm_describes_the_workers(monkeypatch):
    variables = {"PROCID": "1", "STEP_NUM_TASKS": "3", "STEP_NODELIST": "n[07-08]"}
    for name, value in {**variables, "STEP_TASKS_PER_NODE": "2,1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert config_from_slurm() == {
        "cluster": {"worker": ["n07:8888", "n07:8889", "n08:8888"]},
        "task": {"type": "worker", "index": 1},
    }


def test_one_device_leaves_the_data_alone():
    dataset = object()
    assert Distribution().dataset(dataset) is dataset
    assert TensorFlowDistribution().dataset(dataset) is dataset


def test_what_devices_cannot_do_is_refused(monkeypatch):
    replicas = TensorFlowDistribution()
    replicas.strategy = object()
    replicas.check(TrainingConfig(gradient_accumulation_steps=2))
    with pytest.raises(ValueError, match="Expected jit_compile=true on one device only. Received"):
        replicas.check(TrainingConfig(jit_compile=True))
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match="Received: strategy='mirrored'. Use the TensorFlow"):
        start("mirrored")
    assert start("auto").strategy is None


def test_on_jax_too(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="Received: strategy='multi_worker'. Use the TensorFlow"):
        start("multi_worker")


# === Workers, by the command ===


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
    processes = []

    def start_worker(name, max_steps, worker=None, ports=(), devices=1):
        command = [devices, "train", "--output", tmp_path / name, "--max-steps", max_steps]
        command += ["--strategy", "mirrored"] if devices > 1 else []
        for split in ("train", "valid"):
            command += [f"--source-{split}", paths[0], f"--target-{split}", paths[1]]
        environment = dict(os.environ)
        if worker is not None:
            cluster = {"worker": [f"localhost:{port}" for port in ports]}
            task = {"type": "worker", "index": worker}
            environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
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


@pytest.mark.slow
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
        assert process.wait(timeout=120) == 0, process.stderr.read()
    np.testing.assert_allclose(curve(tmp_path / "run"), curve(tmp_path / "alone"), rtol=1e-3)


@pytest.mark.slow
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
    assert other.wait(timeout=60) == 1
    assert "another worker has stopped" in other.stderr.read()
    assert not (tmp_path / "run-1").exists()  # the chief alone writes

    newest = sorted((tmp_path / "run-0" / "checkpoints").glob("step-*"))[-1]
    max_steps = int(newest.name[5:]) + 8
    again = [train_worker(f"run-{i}", max_steps, i, ports) for i in range(2)]
    for worker in again:
        assert worker.wait(timeout=120) == 0, worker.stderr.read()
    alone = train_worker("alone", max_steps)
    assert alone.wait(timeout=120) == 0, alone.stderr.read()
    np.testing.assert_allclose(curve(tmp_path / "run-0"), curve(tmp_path / "alone"), rtol=1e-3)


@pytest.mark.slow
def test_a_signal_to_one_worker_is_one_to_all(tmp_path, train_worker, free_ports):
    ports = free_ports(2)
    workers = [train_worker(f"run-{i}", 100_000, i, ports) for i in range(2)]
    while not (tmp_path / "run-0" / "checkpoints").exists():
        assert workers[0].poll() is None, workers[0].stderr.read()
        time.sleep(0.1)
    workers[1].terminate()
    for worker in workers:
        assert worker.wait(timeout=60) == 143
        assert "the work is saved" in worker.stderr.read()


@pytest.mark.slow
def test_what_the_chief_refuses_ends_the_others(tmp_path, train_worker, free_ports):
    (tmp_path / "run-0").mkdir()
    (tmp_path / "run-0" / "thesis.txt").touch()
    ports = free_ports(2)
    workers = [train_worker(f"run-{i}", 10, i, ports) for i in range(2)]
    for worker in workers:
        assert worker.wait(timeout=60) == 2
        assert "which holds other files" in worker.stderr.read()
