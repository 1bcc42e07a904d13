"""A step that is divided, among replicas, workers or into parts, is the step of one device."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

CASES = {
    "one": {
        "sgd": {},
        "clipped": {"optimizer": "clipped"},
        "adam": {"optimizer": "adam"},
        "parts 2": {"parts": 2},
        "parts 4": {"parts": 4},
        "float16": {"dtype": "mixed_float16"},
        "of Keras, parts": {"optimizer": "accumulating", "of_keras": True},
    },
    "2 replicas": {
        "sgd": {},
        "clipped": {"optimizer": "clipped"},
        "adam": {"optimizer": "adam"},
        "parts 2": {"parts": 2},
        "float16": {"dtype": "mixed_float16"},
        "of Keras, clipped": {"optimizer": "clipped", "of_keras": True},
    },
    "4 replicas": {"sgd": {}},
    "2 workers": {
        "sgd": {},
        "adam": {"optimizer": "adam"},
        "float16": {"dtype": "mixed_float16"},
        "of Keras": {"of_keras": True},
    },
}


@pytest.fixture(scope="module")
def results(tmp_path_factory, corpus, tokenizer, steps_program, write_batches, free_ports):
    """Dict from the way of division and the case to what `steps_program.py` found."""
    folder = tmp_path_factory.mktemp("steps")
    write_batches(folder / "batches.npz", corpus, tokenizer)
    ports = free_ports(2)
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    processes = {}
    for division, cases in CASES.items():
        number, _, kind = division.partition(" ")
        for worker in range(2 if kind == "workers" else 1):
            strategy = {"replicas": "mirrored", "workers": "multi_worker"}.get(kind, "one")
            devices = number if kind == "replicas" else "1"
            output = folder / f"{division}-{worker}.npz"
            environment = dict(os.environ)
            if kind == "workers":
                task = {"type": "worker", "index": worker}
                environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
            arguments = [strategy, devices, folder / "batches.npz", json.dumps(cases), output]
            processes[output] = subprocess.Popen(
                [sys.executable, steps_program, *arguments],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        if kind != "replicas" or number == "4":  # two or so at a time, as there are cores
            for output, process in processes.items():
                assert process.wait() == 0, f"{output}: {process.stderr.read()}"
    return {path.stem: dict(np.load(path)) for path in processes}


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


DIVIDED = [
    ("one-0", "parts 2"),
    ("one-0", "parts 4"),
    ("2 replicas-0", "sgd"),
    ("2 replicas-0", "parts 2"),
    ("4 replicas-0", "sgd"),
    ("2 workers-0", "sgd"),
    ("2 workers-1", "sgd"),
]


@pytest.mark.parametrize("division, case", DIVIDED)
def test_the_gradient_is_that_of_one_device(results, division, case):
    whole, divided = results["one-0"], results[division]
    np.testing.assert_array_equal(divided[f"{case}/start"], whole["sgd/start"])
    gradients = [
        found[f"{name}/after_a_step"] - found[f"{name}/start"]
        for found, name in ((divided, case), (whole, "sgd"))
    ]
    assert np.linalg.norm(gradients[1]) > 0.01
    assert relative_error(*gradients) < 1e-5


@pytest.mark.parametrize(
    "division, case",
    [*DIVIDED, ("2 replicas-0", "clipped")],
)
def test_ten_steps_are_those_of_one_device(results, division, case):
    name = "clipped" if case == "clipped" else "sgd"
    assert relative_error(results[division][f"{case}/end"], results["one-0"][f"{name}/end"]) < 1e-5


@pytest.mark.parametrize("division", ["2 replicas-0", "2 workers-0", "2 workers-1"])
@pytest.mark.parametrize("name", ["loss", "perplexity", "accuracy"])
def test_the_curves_of_adam_are_those_of_one_device(results, division, name):
    curve, expected = (results[key][f"adam/{name}"] for key in (division, "one-0"))
    np.testing.assert_allclose(curve, expected, rtol=1e-4)


@pytest.mark.parametrize("division", ["2 replicas-0", "2 workers-0"])
def test_float16_divided_is_float16_of_one_device(results, division):
    curve, expected = (results[key]["float16/loss"] for key in (division, "one-0"))
    assert expected[-1] < expected[0] - 0.1  # the loss is scaled, and gradients are not lost
    np.testing.assert_allclose(curve, expected, rtol=1e-2)
    np.testing.assert_allclose(expected, results["one-0"]["sgd/loss"], rtol=1e-2)


def test_replicas_draw_their_own_dropout(results):
    (alone,) = results["one-0"]["dropout"]
    masks = results["4 replicas-0"]["dropout"]
    np.testing.assert_array_equal(masks[0], alone)
    assert len({mask.tobytes() for mask in masks}) == 4
    assert (
        results["2 workers-0"]["dropout"].tobytes() != results["2 workers-1"]["dropout"].tobytes()
    )


# === What Keras does not do: where it does, `DividedTransformer` loses an override ===


def test_keras_averages_what_it_accumulates(results):
    """keras-team/keras#20582; two batches of unequal numbers of tokens are two halves to it."""
    assert (
        relative_error(results["one-0"]["of Keras, parts/end"], results["one-0"]["sgd/end"]) > 1e-3
    )


def test_keras_clips_before_it_sums(results):
    found = results["2 replicas-0"]
    if "of Keras, clipped/error" not in found:
        assert (
            relative_error(found["of Keras, clipped/end"], results["one-0"]["clipped/end"]) > 1e-4
        )


def test_keras_cannot_fit_on_several_workers(results):
    """keras-team/keras#20585."""
    assert "of Keras/error" in results["2 workers-0"], f"Keras {keras.__version__} can"
