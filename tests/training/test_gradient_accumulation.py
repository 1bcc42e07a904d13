"""A step that is divided, among replicas, workers or into parts, is the step of one device."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.models.decoder_model import TokenModel
from keras_transformer.training import TokenAccuracy, TokenCrossEntropy
from keras_transformer.training.gradient_accumulation import with_divided_step
from tests import forked

SMALL = {"small": True}
EAGER = {"run_eagerly": True}  # of a few steps, where the compiled step is not what is tested
CLIPPED = {"optimizer": "clipped", **SMALL}
AVERAGES = {"optimizer": "averaging", **SMALL}
FLOAT16 = {**AVERAGES, "dtype": "mixed_float16"}
CASES = {
    "one": {
        "sgd": {**SMALL, **EAGER},
        "clipped": {**CLIPPED, **EAGER},
        "averages": {**AVERAGES, **EAGER},
        "parts 4": {"parts": 4, **SMALL},
        "float16": FLOAT16,
    },
    "one of a Transformer": {"Transformer": EAGER},
    "2 replicas": {
        "sgd": SMALL,
        "clipped": {**CLIPPED, "parts": 2},
        "averages": AVERAGES,
        "float16": FLOAT16,
    },
    "4 replicas": {"Transformer": {}},
    "2 workers": {"Transformer": {}, "averages": AVERAGES, "of Keras": {"of_keras": True}},
    "2 workers in float16": {"float16": FLOAT16},
    "one of Keras": {"parts": {"optimizer": "accumulating", "of_keras": True, **SMALL}},
    "2 replicas of Keras": {"clipped": {**CLIPPED, "of_keras": True}},
}


class Results(dict):
    """From the way of division and the process, as "2 workers-1", to what it found.

    Each way of division runs when it is first asked for, so that those of slow tests do not run
    without them.
    """

    def __init__(self, folder, program, ports):
        self.folder = folder
        self.program = program
        self.cluster = {"worker": [f"localhost:{port}" for port in ports]}

    def __missing__(self, key):
        division = key.rpartition("-")[0]
        number = division.partition(" ")[0]
        has_workers, has_replicas = "workers" in division, "replicas" in division
        strategy = "multi_worker" if has_workers else "mirrored" if has_replicas else "one"
        devices = number if has_replicas else "1"
        cases = json.dumps(CASES[division])
        processes = {}
        with open(self.folder / f"{division}.txt", "w+") as log, open(os.devnull) as no_input:
            for worker in range(2 if has_workers else 1):
                output = self.folder / f"{division}-{worker}.npz"
                environment = dict(os.environ)
                if has_workers:
                    task = {"type": "worker", "index": worker}
                    environment["TF_CONFIG"] = json.dumps({"cluster": self.cluster, "task": task})
                arguments = [strategy, devices, self.folder / "batches.npz", cases, output]
                command = [self.program, *arguments]
                if has_workers:  # whose variable of TensorFlow is read by its import
                    processes[output] = subprocess.Popen(
                        [sys.executable, *command], env=environment, stdout=log, stderr=log
                    )
                else:
                    processes[output] = forked.start(command, (no_input, log, log))
            for output, process in processes.items():
                code = process.wait() if has_workers else process.join() or process.exitcode
                log.seek(0)
                assert code == 0, f"{output}: {log.read()}"
                self[output.stem] = dict(np.load(output))
        return self[key]


@pytest.fixture(scope="module")
def results(tmp_path_factory, corpus, tokenizer, steps_program, write_batches, free_ports):
    folder = tmp_path_factory.mktemp("steps")
    write_batches(folder / "batches.npz", corpus, tokenizer)
    return Results(folder, steps_program, free_ports(2))


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


DIVIDED = [
    ("one-0", "parts 4"),
    ("2 replicas-0", "sgd"),
    pytest.param("4 replicas-0", "Transformer", marks=pytest.mark.slow),
    pytest.param("2 workers-0", "Transformer", marks=pytest.mark.slow),
    pytest.param("2 workers-1", "Transformer", marks=pytest.mark.slow),
]


def on_one_device(results, case):
    """Returns what the same steps found that are not divided, and the name of their case."""
    if case == "Transformer":
        return results["one of a Transformer-0"], case
    return results["one-0"], "sgd" if case == "parts 4" else case


@pytest.mark.parametrize("division, case", DIVIDED)
def test_the_gradient_is_that_of_one_device(results, division, case):
    divided = results[division]
    whole, whole_case = on_one_device(results, case)
    np.testing.assert_array_equal(divided[f"{case}/start"], whole[f"{whole_case}/start"])
    gradients = [
        found[f"{name}/after_a_step"] - found[f"{name}/start"]
        for found, name in ((divided, case), (whole, whole_case))
    ]
    assert np.linalg.norm(gradients[1]) > 0.01
    assert relative_error(*gradients) < 1e-5


@pytest.mark.parametrize(
    "division, case",
    [*DIVIDED, ("2 replicas-0", "clipped")],
)
def test_ten_steps_are_those_of_one_device(results, division, case):
    whole, whole_case = on_one_device(results, case)
    found, expected = results[division][f"{case}/end"], whole[f"{whole_case}/end"]
    assert relative_error(found, expected) < 1e-5


def test_gradients_are_clipped(results):
    """Otherwise the comparison of clipped steps would prove nothing."""
    found = results["one-0"]
    assert relative_error(found["clipped/end"], found["sgd/end"]) > 1e-3


@pytest.mark.parametrize(
    "division, case",
    [
        ("one-0", "averages"),
        ("one-0", "float16"),
        ("2 replicas-0", "averages"),
        pytest.param("2 workers-0", "averages", marks=pytest.mark.slow),
        pytest.param("2 workers-1", "averages", marks=pytest.mark.slow),
    ],
)
def test_the_moving_average_is_that_of_the_steps(results, division, case):
    expected, updates = 0.0, 0
    for before, weights in zip([None, *results[division][f"{case}/steps"]],
                               results[division][f"{case}/steps"], strict=False):  # fmt: skip
        if before is not None and np.array_equal(before, weights):
            continue  # float16 has left out the step, whose gradients were not finite
        updates += 1
        decay = min(0.7, (updates - 1) / (updates + 8))
        expected = decay * expected + (1 - decay) * weights.astype("float64")
    assert updates >= 5
    averages = results[division][f"{case}/averages"]
    assert relative_error(averages, expected) < 1e-6
    assert relative_error(averages, results[division][f"{case}/end"]) > 1e-3


@pytest.mark.parametrize(
    "division",
    [
        "2 replicas-0",
        pytest.param("2 workers-0", marks=pytest.mark.slow),
        pytest.param("2 workers-1", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", ["loss", "perplexity", "accuracy"])
def test_the_curves_of_adam_are_those_of_one_device(results, division, name):
    curve, expected = (results[key][f"averages/{name}"] for key in (division, "one-0"))
    np.testing.assert_allclose(curve, expected, rtol=1e-4)


@pytest.mark.parametrize(
    "division", ["2 replicas-0", pytest.param("2 workers in float16-0", marks=pytest.mark.slow)]
)
def test_float16_divided_is_float16_of_one_device(results, division):
    curve, expected = (results[key]["float16/loss"] for key in (division, "one-0"))
    assert expected[-1] < expected[0] - 0.1  # the loss is scaled, and gradients are not lost
    np.testing.assert_allclose(curve, expected, rtol=1e-2)
    np.testing.assert_allclose(expected, results["one-0"]["averages/loss"], rtol=5e-2)


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_replicas_draw_their_own_dropout(results, number):
    (alone,) = results["one-0"]["dropout"]
    masks = results[f"{number} replicas-0"]["dropout"]
    np.testing.assert_array_equal(masks[0], alone)
    assert len({mask.tobytes() for mask in masks}) == number


@pytest.mark.slow
def test_workers_draw_their_own_dropout(results):
    assert (
        results["2 workers-0"]["dropout"].tobytes() != results["2 workers-1"]["dropout"].tobytes()
    )


# === What Keras does not do: where it does, `DividedStep` loses an override ===


@pytest.mark.slow
def test_keras_averages_what_it_accumulates(results):
    """keras-team/keras#20582; two batches of unequal numbers of tokens are two halves to it."""
    found = results["one of Keras-0"]["parts/end"]
    assert relative_error(found, results["one-0"]["sgd/end"]) > 1e-3


@pytest.mark.slow
def test_keras_clips_before_it_sums(results):
    found = results["2 replicas of Keras-0"]
    if "clipped/error" not in found:
        assert relative_error(found["clipped/end"], results["one-0"]["clipped/end"]) > 1e-4


@pytest.mark.slow
def test_keras_cannot_fit_on_several_workers(results):
    """keras-team/keras#20585."""
    assert "of Keras/error" in results["2 workers-0"], f"Keras {keras.__version__} can"


# === What is relied on in Keras, see the docstring of `gradient_accumulation` ===


@keras.saving.register_keras_serializable("tests")
class NextToken(TokenModel):
    """A model of tokens that is no Transformer."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(20, 6)
        self.dense = keras.layers.Dense(20, use_bias=False)

    def build(self, input_shape=None):
        self.embedding.build((None, None))
        self.dense.build((None, None, 6))
        self.built = True

    def call(self, ids, training=False):
        return self.predict_tokens(self.embedding(ids))

    def project(self, hidden):
        return self.dense(hidden)

    def output_table(self):
        return keras.ops.transpose(self.dense.kernel)


def next_token_model(model_class, optimizer=None):
    keras.utils.set_random_seed(3)
    model = model_class()
    model.build()
    model.compile(
        optimizer or keras.optimizers.SGD(0.5), TokenCrossEntropy(0.1), metrics=[TokenAccuracy()]
    )
    return model


def test_any_token_model_can_take_divided_steps():
    labels = np.random.default_rng(1).integers(1, 20, (8, 5)).astype("int32")
    labels[:3, 2:] = 0
    weights = (labels != 0) / np.float32((labels != 0).sum())
    batch = labels, labels, weights.astype("float32")
    found = {}
    for parts in (None, 1, 4):
        model = next_token_model(
            NextToken if parts is None else with_divided_step(NextToken, parts)
        )
        dataset = tf.data.Dataset.from_tensors(batch).repeat(3)
        history = model.fit(dataset, verbose=0).history
        validation = model.evaluate(dataset, verbose=0)
        found[parts] = [*model.get_weights(), history["loss"], history["accuracy"], *validation]
    for parts in (1, 4):
        for array, expected in zip(found[parts], found[None], strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make", [keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.Lion]
)
def test_the_optimizer_looks_up_its_gradient_sum_on_itself(make):
    """Otherwise every gradient would be summed twice over the replicas, and nobody would see it."""
    optimizer = make()
    weight = keras.Variable(np.zeros(3, "float32"))
    optimizer.build([weight])
    calls = []
    assert callable(optimizer._all_reduce_sum_gradients)

    def record(grads_and_vars):
        calls.append(list(grads_and_vars))
        return []  # nothing is left to apply

    optimizer._all_reduce_sum_gradients = record
    optimizer.apply_gradients([(tf.ones(3), weight)])
    assert len(calls) == 1
    ((gradient, variable),) = calls[0]
    np.testing.assert_array_equal(gradient, np.ones(3))
    assert variable is weight.value
    np.testing.assert_array_equal(weight, np.zeros(3))


def test_the_gradient_sum_of_the_optimizer_is_switched_off():
    for optimizer in (
        keras.optimizers.SGD(),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    ):
        model = next_token_model(with_divided_step(NextToken), optimizer)
        inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        assert inner._all_reduce_sum_gradients is list


def test_an_optimizer_without_that_method_is_refused(monkeypatch):
    owner = next(
        base for base in keras.optimizers.SGD.__mro__ if "_all_reduce_sum_gradients" in vars(base)
    )
    monkeypatch.delattr(owner, "_all_reduce_sum_gradients")
    with pytest.raises(RuntimeError, match="would sum the gradients twice"):
        next_token_model(with_divided_step(NextToken))


def test_the_loss_tracker_is_the_metric_called_loss():
    model = next_token_model(NextToken)
    assert model._loss_tracker is model.metrics[0]
    model._loss_tracker.update_state(3.0, sample_weight=2.0)
    assert model.metrics[0].name == "loss" and float(model.metrics[0].result()) == 3.0


def test_fit_and_evaluate_build_by_the_method_that_is_overridden(monkeypatch):
    calls = []
    monkeypatch.setattr(
        NextToken, "_maybe_symbolic_build", lambda self, iterator: calls.append(iterator), raising=0
    )
    assert hasattr(keras.Model, "_maybe_symbolic_build")
    model = next_token_model(NextToken)
    batch = np.ones((2, 3), "int32")
    model.fit(batch, batch, verbose=0)
    model.evaluate(batch, batch, verbose=0)
    assert len(calls) == 2 and None not in calls


def test_a_model_knows_the_strategy_of_its_scope():
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = next_token_model(NextToken)
    assert model.distribute_strategy is strategy
    assert next_token_model(NextToken).distribute_strategy is tf.distribute.get_strategy()
