import io
import json
import math
import types

import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.training import distribution, training_log
from keras_transformer.training.training_loop import SaveAndStop, StepCallbacks


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("max_minutes", "time_left"),
    [
        (None, "15:00"),  # 90 steps at 10 seconds a step
        (20, "15:00"),
        (3, "01:30"),  # after a minute and a half
        (1, "00:00"),  # the last step takes longer
    ],
)
def test_the_bar_shows_the_time_to_the_limit_that_comes_first(max_minutes, time_left, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    training = TrainingConfig(max_steps=110, max_minutes=max_minutes)
    state.step = 10
    bar = training_log.ProgressBar(state, training)
    bar.on_train_begin()
    now = bar.bar.start_t
    monkeypatch.setattr(bar.bar, "_time", lambda: now + 100)
    bar.bar.n, state.minutes = 20, 1.5  # ten steps in 100 seconds
    assert f"20/110 [01:40<{time_left}, " in str(bar.bar)
    bar.close()


def test_the_bar_says_that_the_first_step_compiles_and_knows_no_time_before(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    bar = training_log.ProgressBar(types.SimpleNamespace(step=3), TrainingConfig(max_steps=9))
    bar.on_train_begin()
    assert "3/9 [00:00<?, ?step/s, compiling the first step]" in str(bar.bar)
    bar.on_train_batch_end(0, {"loss": 3.0})
    assert "4/9" in str(bar.bar) and "compiling" not in str(bar.bar)
    bar.close()


def test_the_log_says_which_share_of_the_time_a_validation_takes(tmp_path, monkeypatch):
    seconds = iter([100.0, 118.0, 120.0])  # 18 of training, 2 of validation
    monkeypatch.setattr(training_log.time, "monotonic", lambda: next(seconds))
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    task = types.SimpleNamespace(batches=[None], monitor="val_bleu")
    path, lines = tmp_path / "metrics.jsonl", []
    log = training_log.Log(path, state, task, lines.append)
    log.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(learning_rate=0.1)))
    log.on_epoch_begin(0)
    log.on_test_begin()
    log.on_epoch_end(0, {"loss": 2.0, "val_bleu": 5.0})
    assert json.loads(path.read_text())["validation_share"] == 0.1
    assert len(lines) == 1


def test_a_validation_that_is_done_again_has_no_share(tmp_path):
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    task = types.SimpleNamespace(batches=[None], monitor="val_bleu")
    log = training_log.Log(tmp_path / "metrics.jsonl", state, task, lambda line: None)
    log.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(learning_rate=0.1)))
    log.on_test_begin()
    log.on_epoch_end(0, {"loss": 2.0})
    assert "validation_share" not in json.loads(log.path.read_text())


class Loss:
    """A loss on a device: to read it is to wait until its step has ended."""

    is_read = False

    def __float__(self):
        self.is_read = True
        return 1.0


@pytest.mark.parametrize("on_terminal", [True, False])
def test_no_step_waits_until_the_device_has_ended_it(on_terminal, monkeypatch):
    """The loss of a step is read when the next one has begun, or before a checkpoint."""
    monkeypatch.setattr("sys.stderr", Terminal() if on_terminal else io.StringIO())
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    training = TrainingConfig(max_steps=9, checkpoint_every=3)
    devices = distribution.Distribution()
    interruption = types.SimpleNamespace(signal_number=None)
    saver = SaveAndStop(None, state, None, training, interruption, devices)
    saver.set_model(types.SimpleNamespace(weights=[]))
    bar = training_log.ProgressBar(state, training)
    bar.on_train_begin()
    steps = StepCallbacks([bar, saver])
    losses = [Loss(), Loss(), Loss()]
    for step, loss in enumerate(losses[:2]):
        steps.on_train_batch_begin(step)
        steps.on_train_batch_end(step, {"loss": loss})
        assert [loss.is_read for loss in losses] == [other < step for other in range(3)]
    steps.on_train_batch_end(2, {"loss": losses[2]})  # a checkpoint is due
    assert all(loss.is_read for loss in losses) and state.step == 3
    bar.close()


@pytest.mark.parametrize(("bad_step", "noticed_after"), [(1, 2), (2, 3), (3, 3)])
def test_a_loss_that_is_not_finite_is_that_of_its_step(bad_step, noticed_after):
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    training = TrainingConfig(max_steps=9, checkpoint_every=3)
    devices = distribution.Distribution()
    interruption = types.SimpleNamespace(signal_number=None)
    checkpoints = types.SimpleNamespace(newest=lambda: None)
    saver = SaveAndStop(checkpoints, state, None, training, interruption, devices)
    optimizer = types.SimpleNamespace(learning_rate=0.1)
    saver.set_model(types.SimpleNamespace(weights=[], optimizer=optimizer))
    steps = 0
    with pytest.raises(FloatingPointError, match=f"the loss is not finite at step {bad_step}"):
        for step in range(1, 4):
            steps += 1
            saver.on_train_batch_end(step - 1, {"loss": math.nan if step >= bad_step else 1.0})
    assert steps == noticed_after
