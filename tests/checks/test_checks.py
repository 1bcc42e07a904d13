"""Each planted defect is found, and nothing is found in models that are right."""

import subprocess
import types

import keras
import pytest

from keras_transformer.checks import CHECKS, Subject, check, failed, held, saving_checks, verdicts
from keras_transformer.models import Transformer
from tests import forked
from tests.checks.defects import (
    DEFECTS,
    a_weight_that_is_not_a_number,
    language_model,
    recurrent,
    right_models,
)

OURS = frozenset(CHECKS)
"""Without those that other tests add."""
SLOW_CHECKS = {"save and load", "speed"}
"""A process each, or many repetitions; one model is enough."""


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(1)


@pytest.fixture
def forks(monkeypatch):
    """Loads models in forks; a test of a right model loads it in a fresh process."""

    def run(command, *, env, **captured):
        return forked.run(command[1:])

    monkeypatch.setattr(saving_checks, "subprocess", types.SimpleNamespace(run=run))


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name):
    expected, make = DEFECTS[name]
    ((_, verdict),) = verdicts(make(), [expected])
    assert verdict.status == "failed", verdict
    assert verdict.found and verdict.advice


FEW = "transformer", "gru", "batch normalization", "text"
"""The others take longer."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in right_models()],
)
def test_nothing_is_found_in_a_right_model(name):
    subject = right_models()[name]()
    found = dict(verdicts(subject, OURS - SLOW_CHECKS))
    assert {key: v for key, v in found.items() if v.status == "failed"} == {}
    assert sum(verdict.status == "held" for verdict in found.values()) >= 8


def test_nothing_is_found_in_half_precision():
    sizes = dict(num_layers=2, d_model=64, ff_dim=128, num_heads=4)
    model = Transformer(90, **sizes, dtype="mixed_float16")
    model.build()
    for weight in model.trainable_weights:
        weight.assign(3 * weight)  # of a trained model, whose rounding errors are larger
    found = verdicts(Subject(model), ["causality", "neighbours", "padding", "steps"])
    assert [verdict.status for _, verdict in found] == ["held"] * 4


def test_a_right_model_is_the_same_in_a_new_process():
    found = dict(verdicts(language_model(recurrent), SLOW_CHECKS))
    assert {verdict.status for verdict in found.values()} == {"held"}, found


def test_a_model_of_nans_holds_in_nothing_that_it_computes():
    subject = a_weight_that_is_not_a_number()
    found = dict(verdicts(subject, OURS - SLOW_CHECKS - {"gradients reach all weights"}))
    assert [name for name, verdict in found.items() if verdict.status == "held"] == []
    assert "dense" in found["activations"].found


def test_a_user_adds_a_check():
    subject = language_model(recurrent)
    try:

        @check("few tokens")
        def few_tokens(subject):
            return held("few") if subject.vocab_size < 100 else failed("many", "Take fewer.")

        assert dict(verdicts(subject, ["few tokens"]))["few tokens"] == held("few")
    finally:
        del CHECKS["few tokens"]


class Generates(keras.Model):
    """Does what its tests say where KerasHub's tasks generate."""

    def __init__(self, generate_step):
        super().__init__()
        self.table = keras.layers.Embedding(30, 30)
        self.generate_step = generate_step

    def call(self, inputs):
        return self.table(inputs["token_ids"])


@pytest.mark.parametrize(
    "generate_step, status, found",
    [
        (lambda inputs: inputs["images"], "not applicable", "asks for 'images', which the model"),
        (lambda inputs: {"token_ids": inputs["token_ids"]}["heads"], "failed", "KeyError: 'heads'"),
    ],
)
def test_an_input_that_the_model_lacks_is_no_fault_but_another_key_is(generate_step, status, found):
    subject = Subject(Generates(generate_step), inputs=("token_ids",))
    verdict = dict(verdicts(subject, ["steps"]))["steps"]
    assert verdict.status == status and found in verdict.found


def test_a_process_that_is_killed_is_a_verdict(monkeypatch):
    killed = subprocess.CompletedProcess([], -9, stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: killed)
    verdict = dict(verdicts(language_model(recurrent), ["save and load"]))["save and load"]
    assert verdict.status == "failed" and verdict.found.endswith("ended with exit code -9")


def test_an_error_within_a_check_is_a_verdict():
    def refuse(*arguments, **options):
        raise ValueError("no\nlonger than 3")

    subject = language_model(recurrent)
    subject.model.call = refuse
    verdict = dict(verdicts(subject, ["causality"]))["causality"]
    assert verdict.status == "failed" and verdict.found.startswith("ValueError")


def test_an_unknown_check_is_refused():
    with pytest.raises(ValueError, match="Did you mean causality"):
        list(verdicts(language_model(recurrent), ["casuality"]))
