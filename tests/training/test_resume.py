"""What a training that goes on takes over from the one before it."""

import time
import types

import keras
import numpy as np
import pytest

from keras_transformer.config import Config
from keras_transformer.runs.checkpoints import Checkpoints, TrainingState
from keras_transformer.training import training_loop

SETTINGS = [
    "model.num_layers=1",
    "model.d_model=16",
    "model.ff_dim=24",
    "model.num_heads=2",
    "tokenizer.vocab_size=150",
    "training.max_minutes=2.4",
]


@pytest.fixture
def clock(monkeypatch):
    """What the training takes for the time, in seconds: `clock.now`."""
    clock = types.SimpleNamespace(now=1000.0)
    fake = types.SimpleNamespace(**{**vars(time), "monotonic": lambda: clock.now})
    monkeypatch.setattr(training_loop, "time", fake)
    return clock


def test_minutes_add_up_over_a_resume(tmp_path, start_training, clock):
    config = Config().override(SETTINGS)
    started = start_training(config, tmp_path / "run")
    first = started.saver
    first.set_model(started.model)
    clock.now += 90
    first.on_train_batch_end(0, {"loss": 1.0})
    assert first.state.minutes == 1.5 and first.limit is None
    first.save(validated=True)

    clock.now += 5000  # in which nobody trains
    started = start_training(config, tmp_path / "run")
    again = started.saver
    again.set_model(started.model)
    assert again.state.minutes == 1.5 and again.limit is None
    clock.now += 60
    again.on_train_batch_end(0, {"loss": 1.0})
    assert again.state.minutes == 2.5
    assert again.limit == "max_minutes"


def test_patience_counts_the_validations_since_the_best(start_training):
    started = start_training(Config().override([*SETTINGS, "training.patience=2"]))
    saver = started.saver
    saver.set_model(started.model)
    limits = []
    for step, score in enumerate((3.0, 2.0, 3.5, 3.5, 1.0), start=1):
        saver.state.step = step
        saver.on_epoch_end(step - 1, {"val_bleu": score})
        limits.append(saver.limit)
    assert limits == [None] * 4 + ["patience"]
    assert (saver.state.best_step, saver.state.best_score) == (3, 3.5)


def test_checkpoints_without_a_validation_take_no_place_of_those_that_had_one(tmp_path):
    """They come of interruptions, as many as there are, and training goes on from the newest."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(tmp_path)
    for step, validated in {10: 1, 20: 1, 26: 0, 30: 1, 36: 0, 39: 0}.items():
        state = TrainingState(step=step, best_step=10, validated=bool(validated))
        for weight in model.weights:
            weight.assign(np.full(weight.shape, step))
        checkpoints.save(model, state, keep=2)
        assert checkpoints.newest().name == f"step-{step:08d}"
        kept = {int(path.name[5:]) for path in checkpoints.all()}
        assert kept >= {10, min(step, 20), step}
    assert {10, 20, 30, 39} <= kept <= {10, 20, 30, 36, 39}  # the two newest can be gone on from
    checkpoints.load_mean(model, checkpoints.validated()[-2:])
    for weight in model.get_weights():
        np.testing.assert_allclose(weight, 25)
