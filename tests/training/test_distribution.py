"""The choice of devices, and the dealing of batches."""

import json

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
        ("many", None, "auto, one, mirrored, multi_worker, model_parallel, tpu. Received"),
        ("tpu", None, "Expected a TPU"),
        ("model_parallel", None, "strategy='model_parallel', KERAS_BACKEND=tensorflow. Set"),
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
