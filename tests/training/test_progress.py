import io
import time
import types

import keras
import numpy as np
import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.training import distribution, progress
from keras_transformer.training.optimizer import make_optimizer
from keras_transformer.training.training_loop import SaveAndStop, StepCallbacks

TASK = types.SimpleNamespace(monitor="val_bleu", score_name="BLEU")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Number:
    """A number on a device: to read it is to wait until its step has ended."""

    is_read = False

    def __float__(self):
        self.is_read = True
        return 1.0


@pytest.fixture
def clock(monkeypatch):
    """The time that a `Meter` sees."""
    clock = types.SimpleNamespace(seconds=1000.0)
    fake = types.SimpleNamespace(perf_counter=lambda: clock.seconds)
    monkeypatch.setattr(progress, "time", fake)
    return clock


def meter_of(state, **training):
    meter = progress.Meter(state, TrainingConfig(**training), batches_per_epoch=10)
    optimizer = types.SimpleNamespace(learning_rate=0.1, gradient_norm=2.0)
    meter.set_model(types.SimpleNamespace(weights=[], optimizer=optimizer))
    return meter


@pytest.mark.parametrize(
    ("max_minutes", "left"),
    [
        (None, "15:00 left, 18% done"),  # 90 steps at 10 seconds a step
        (20, "15:00 left, 18% done"),
        (3, "01:30 left, 50% done"),  # after a minute and a half
        (1, "00:00 left, 100% done"),  # the last step takes longer
    ],
)
def test_the_limit_that_comes_first_says_what_is_left(max_minutes, left):
    state = TrainingState(step=20, minutes=1.5)
    training = TrainingConfig(max_steps=110, max_minutes=max_minutes)
    assert progress.left(state, training, 10.0) == left


def test_all_rows_fit_80_columns_below_one_heading():
    table = progress.Table(TASK, None)
    heading = table.heading()
    record = {
        "step": 123_456,
        "minutes": 1234.56,
        "loss": 10.1234,
        "tokens_per_second": 999_999.4,
        "learning_rate": 0.000012345,
        "gradient_norm": 1234.5678,
        "val_perplexity": 12345.678,
        "val_bleu": 41.234,
    }
    row = table.row(record, "best")
    shown = "123,456 1234.6 10.123 999,999 1.23e-05 1234.568 12,345.68 41.23 best"
    assert row.split() == shown.split() and len(row) <= 79
    ends = [heading.index(name) + len(name) for name in ("step", "min", "loss", "lr", "BLEU")]
    assert all(row[end - 1] != " " == row[end] for end in ends)
    without = {name: record[name] for name in record if not name.startswith("val_")}
    assert len(table.row(without, "99:59:59 left, 100% done")) <= 80
    chosen = {name: record[name] for name in record if name.startswith("val_")}
    chosen_row = table.row({"weights": "mean of 10 checkpoints", **chosen})
    assert chosen_row == "mean of 10 checkpoints".ljust(54) + row[54:].removesuffix("  best")


def test_a_training_says_what_it_does_and_how_fast_it_is(clock):
    state = TrainingState(step=30, num_target_tokens=5000)  # 500 a step
    meter = meter_of(state, max_steps=130)
    clock.seconds += 12.4
    assert meter.now() == ({"step": 30, "minutes": 0.0}, "compiling the first step, 12 s so far")
    for batch in range(3):
        meter.on_train_batch_end(batch, {"loss": 4.0})
        state.step += 1
        clock.seconds += 2
    record, remark = meter.now()
    assert record == {
        "step": 33,
        "minutes": 0.0,
        "loss": 4.0,
        "learning_rate": pytest.approx(0.1),
        "gradient_norm": 2.0,
        "tokens_per_second": 250,
    }
    assert remark == "03:14 left, 25% done"  # 97 steps of two seconds: not that of the compiling
    meter.on_test_begin()
    clock.seconds += 3
    assert meter.now()[1] == "validating, 3 s so far"
    logs = {"loss": 3.5, "val_loss": 3.0}
    meter.on_epoch_end(0, logs)
    assert logs["loss"] == 3.5 and logs["gradient_norm"] == 2.0 and logs["val_loss"] == 3.0
    assert logs["tokens_per_second"] == 250  # without the validation


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_row_changes_on_a_terminal_and_appears_each_minute_elsewhere(is_terminal, monkeypatch):
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    for name in ("FIRST_ROW_SECONDS", "ROW_SECONDS", "REFRESH_SECONDS"):
        monkeypatch.setattr(progress, name, 0.01)
    lines = []
    table = progress.Table(TASK, lines.append)
    meter = meter_of(TrainingState(step=7))
    with progress.Display(meter, table):
        end = time.monotonic() + 10
        while len(lines) < 2 and stream.getvalue().count("compiling") < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
    row = "      7     0.0  compiling the first step, 0 s so far"
    if is_terminal:
        assert f"\r{row}" in stream.getvalue() and not lines
        assert stream.getvalue().endswith("\r") and not stream.getvalue().split("\r")[-2].strip()
    else:
        assert lines[:2] == [row, row] and not stream.getvalue()


def test_no_step_waits_until_the_device_has_ended_it(clock):
    """The loss of a step is read when the next one has begun, or before a checkpoint.

    What is shown is read once a second.
    """
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    training = TrainingConfig(max_steps=9, checkpoint_every=4)
    interruption = types.SimpleNamespace(signal_number=None)
    saver = SaveAndStop(None, state, None, training, interruption, distribution.Distribution())
    meter = meter_of(state)
    saver.set_model(meter.model)
    steps = StepCallbacks([meter, saver])
    losses = [Number() for _ in range(4)]
    read = [[0], [0], [0, 1, 2], [0, 1, 2, 3]]  # in the third step, a second has passed
    for step, seconds in enumerate([0.0, 0.5, 0.5, 0.1]):
        clock.seconds += seconds
        steps.on_train_batch_end(step, {"loss": losses[step]})
        assert [i for i in range(4) if losses[i].is_read] == read[step]


@pytest.mark.parametrize("settings", [{}, {"clip_norm": 0.5}, {"ema": 0.9}])
def test_the_gradient_norm_is_that_of_all_weights_before_clipping(settings):
    rng = np.random.default_rng(1)
    weights = [keras.Variable(rng.normal(size=shape), dtype="float32") for shape in ((3, 2), (5,))]
    gradients = [rng.normal(size=weight.shape).astype("float32") for weight in weights]
    adam = make_optimizer(TrainingConfig(**settings), keras.optimizers.schedules.CosineDecay(1, 9))
    adam.build(weights)
    before = np.array(weights[0])
    adam.apply([keras.ops.convert_to_tensor(gradient) for gradient in gradients], weights)
    expected = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
    np.testing.assert_allclose(np.array(adam.gradient_norm), expected, rtol=1e-5)
    assert expected > 0.5 and not np.array_equal(before, np.array(weights[0]))
