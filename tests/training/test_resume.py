"""What a training that goes on takes over from the one before it."""

import time
import types

import keras
import numpy as np
import pytest

from keras_transformer.config import Config, TrainingConfig
from keras_transformer.runs.checkpoints import Checkpoints, TrainingState
from keras_transformer.training import training_loop
from keras_transformer.training.one_device import Distribution
from keras_transformer.training.training_loop import SaveAndStop
from keras_transformer.training.translation_task import TranslationTask

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


@pytest.mark.parametrize(
    "validations, num, best_step",
    [
        # BLEU and loss of each validation, how many of them are done, and the best one
        ([(3.0, 2.0), (2.0, 2.0), (3.5, 2.0), (3.5, 2.0), (1.0, 2.0), (9.0, 1.0)], 5, 3),
        (
            [(0.0, 6.5), (0.0, 6.3), (0.04, 6.0), (0.0, 5.7), (0.0, 5.5), (0.0, 5.6), (0.9, 5.6)],
            7,
            5,
        ),
        ([(9.0, 2.0), (8.9, 1.9), (8.9, 1.8), (8.9, 1.7), (8.9, 1.7), (8.9, 1.7)], 6, 1),
        ([(9.01, 2.0), (9.04, 2.1), (9.0, 1.9999), (9.0, 1.9998), (9.0, 1.0)], 3, 3),
    ],
)
def test_patience_counts_while_neither_score_nor_loss_is_better(
    validations, num, best_step, monkeypatch
):
    monkeypatch.setattr(SaveAndStop, "save", lambda *args, **kwargs: None)
    config = TrainingConfig(patience=2)
    state = TrainingState(validated=False)
    no_signal = types.SimpleNamespace(signal_number=None)
    task, one_device = TranslationTask(), Distribution()
    saver = SaveAndStop(None, state, task, config, no_signal, one_device)
    for step, (bleu, loss) in enumerate(validations, start=1):
        saver.state.step = step
        saver.on_epoch_end(step - 1, {"val_bleu": bleu, "val_loss": loss})
        if saver.limit is not None:
            break
    assert (saver.limit, step, saver.state.best_step) == ("patience", num, best_step)


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
