"""The planned end of a training against the step at which it really ends."""

import copy
import importlib
import json
import time
import types

import keras
import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.training import Interrupted, training_log, training_loop
from keras_transformer.training.schedules import PlannedEnd


class Simulation:
    """A training in which a step and a validation take a given time, in seconds."""

    def __init__(self, state=None, step=0.5, validation=20.0, compilation=30.0, **settings):
        self.config = TrainingConfig(schedule="linear", **settings)
        self.state = state or TrainingState()
        self.seconds = types.SimpleNamespace(step=step, validation=validation)
        self.compilation = compilation
        self.plans = {}
        schedule = types.SimpleNamespace(
            num_steps=types.SimpleNamespace(assign=lambda n: self.plans.update({self.now: n}))
        )
        self.plan = PlannedEnd(schedule, self.state, self.config)
        self.plan.set_model(object())

    @property
    def now(self):
        return self.state.step

    @property
    def last_plan(self):
        return self.plans[max(self.plans)]

    def run(self, until=None):
        """Trains until a step, or to the end; returns the last step."""
        state, config = self.state, self.config
        self.plan.on_train_begin()
        while state.step < config.max_steps and state.minutes < config.max_minutes:
            state.step += 1
            state.minutes += (self.seconds.step + self.compilation) / 60
            self.compilation = 0.0
            self.plan.on_train_batch_end(0)
            if state.step == until:
                break
            if state.step % config.checkpoint_every == 0:
                self.plan.on_test_begin()
                state.minutes += self.seconds.validation / 60
        return state.step


@pytest.mark.parametrize("checkpoint_every", [1, 3, 250, 10_000])
@pytest.mark.parametrize("validation", [0.0, 20.0, 100.0])
@pytest.mark.parametrize("max_minutes", [2, 60])
def test_the_plan_ends_with_the_training(max_minutes, validation, checkpoint_every):
    training = Simulation(
        validation=validation, max_minutes=max_minutes, checkpoint_every=checkpoint_every
    )
    last_step = training.run()
    if last_step == checkpoint_every:  # it is over before there is anything to plan
        return
    assert abs(training.last_plan - last_step) <= 1
    # neither compilation nor unknown validations make the first plans useless
    if checkpoint_every > 3 and validation <= 20:
        early = min(step for step in training.plans if step >= 9)
        assert training.plans[early] == pytest.approx(last_step, rel=0.35)


def test_the_plan_follows_the_speed():
    training = Simulation(max_minutes=60, checkpoint_every=250)
    training.run(until=3000)
    before = training.last_plan
    training.seconds.step = 1.0  # something else runs on this machine
    last_step = training.run()
    assert last_step < 0.8 * before
    assert training.last_plan == pytest.approx(last_step, rel=0.01)


def test_a_training_that_goes_on_has_the_same_plan():
    training = Simulation(max_minutes=60, checkpoint_every=250)
    training.run(until=1100)
    saved = copy.deepcopy(training.state)
    uninterrupted = training.run()

    again = Simulation(saved, max_minutes=60, checkpoint_every=250)
    again.plan.on_train_begin()
    assert again.last_plan == pytest.approx(uninterrupted, abs=2)
    last_step = again.run()
    assert abs(again.last_plan - last_step) <= 1
    assert last_step == pytest.approx(uninterrupted - 60, abs=5)  # lost with the compilation


def test_another_limit_is_another_plan_at_once():
    training = Simulation(max_minutes=60, checkpoint_every=250)
    training.run(until=1100)
    for max_minutes in (30, 120):
        again = Simulation(
            copy.deepcopy(training.state), max_minutes=max_minutes, checkpoint_every=250
        )
        again.plan.on_train_begin()
        first_plan = again.last_plan
        assert again.run() == pytest.approx(first_plan, abs=65)  # the compilation is 60 steps


def test_steps_may_end_it_before_the_minutes():
    training = Simulation(max_minutes=60, max_steps=1000, checkpoint_every=250)
    assert training.run() == 1000
    assert set(training.plans.values()) == {1000}
    assert set(Simulation(max_steps=7).plans.values()) == set()
    alone = Simulation(max_steps=7)
    alone.plan.on_train_begin()
    alone.plan.on_train_batch_end(0)
    assert alone.plans == {0: 7}


# === In a training, in which every look at the clock takes a second ===


@pytest.fixture
def config(config, monkeypatch):
    clock = types.SimpleNamespace(now=0.0)

    def monotonic():
        clock.now += 1
        return clock.now

    for module in (training_log, training_loop):
        fake = types.SimpleNamespace(**{**vars(time), "monotonic": monotonic})
        monkeypatch.setattr(module, "time", fake)
    return config.override(
        [
            "training.max_steps=400",
            "training.max_minutes=0.6",
            "training.checkpoint_every=12",
            "training.patience=0",
            "training.peak_learning_rate=0.01",
        ]
    )


def rates(run):
    """The learning rate at each validation."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    return {r["step"]: r["learning_rate"] for r in records if "learning_rate" in r}


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.slow
def test_the_rate_is_zero_when_the_minutes_are_over(tmp_path, config, train_quietly, schedule):
    train_module = importlib.import_module("keras_transformer.training.train")
    config = config.override([f"training.schedule={schedule}"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "choose_weights", stop)
        with pytest.raises(Interrupted):
            train_quietly(config, tmp_path / "run")
    found = rates(tmp_path / "run")
    end = max(found)
    assert 12 < end < 36  # seconds, some of which validations took
    assert found[end] < 0.0005 and found[12] > 0.003


def stop(*args):
    raise Interrupted(2)


@pytest.mark.slow
def test_a_training_that_is_interrupted_has_a_rate_of_zero_at_its_end_too(
    tmp_path, config, train_quietly
):
    config = config.override(["training.schedule=linear"])
    step_end = training_loop.SaveAndStop.on_train_batch_end

    def interrupted(saver, batch, logs=None):
        if saver.state.step == 9:
            saver.interruption.signal_number = 15
        step_end(saver, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop.SaveAndStop, "on_train_batch_end", interrupted)
        with pytest.raises(Interrupted):
            train_quietly(config, tmp_path / "run")
    state = json.loads((tmp_path / "run/checkpoints/step-00000010/state.json").read_text())
    assert state["seconds_per_step"] == pytest.approx(1) and state["step"] == 10
    train_quietly(config, tmp_path / "run")
    found = rates(tmp_path / "run")
    assert found[max(found)] < 0.0005 < 0.003 < found[12]


def test_the_end_is_a_variable_of_the_optimizer(start_training, config):
    """Else a compiled step would keep the plan that it began with."""
    started = start_training(config.override(["training.schedule=linear"]))
    optimizer = started.model.optimizer
    (plan,) = (each for each in started.callbacks if isinstance(each, PlannedEnd))
    assert any(plan.schedule.num_steps is variable for variable in optimizer.variables)
    assert started.callbacks.index(plan) == started.callbacks.index(started.saver) + 1
    plan.schedule.num_steps.assign(40)
    optimizer.iterations.assign(29)  # the step of number 30
    rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
    assert rate == pytest.approx(0.01 * 10 / 38)
    assert plan.schedule.get_config()["num_steps"] == 40
