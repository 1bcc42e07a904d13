"""What a training shows while it goes: a row for each validation, and one that changes."""

import contextlib
import sys
import threading
import time

import keras
import numpy as np
import tqdm

READ_SECONDS = 1.0
"""Between two readings of numbers of a step: to read one is to wait until the device has it."""
REFRESH_SECONDS = 0.5
"""Between two looks of the row that changes, on a terminal."""
FIRST_ROW_SECONDS, ROW_SECONDS = 25.0, 60.0
"""To the first such row, and between two, where standard error is no terminal."""

COLUMNS = {  # of a record: heading, width and format
    "step": ("step", 7, ",d"),
    "minutes": ("min", 6, ".1f"),
    "loss": ("loss", 6, ".3f"),
    "tokens_per_second": ("tokens/s", 8, ",.0f"),
    "learning_rate": ("lr", 8, "#.3g"),
    "gradient_norm": ("grad norm", 9, ".3f"),
    "val_perplexity": ("perplexity", 10, ",.2f"),
}


class Table:
    """Rows of numbers under one heading, at most 80 columns wide.

    Args:
        task: the task, whose score has the last column.
        write: called with each line.
    """

    def __init__(self, task, write):
        name = task.score_name
        self.columns = {**COLUMNS, task.monitor: (name, max(5, len(name)), ".2f")}
        self.write = write

    def row(self, record, remark=""):
        """Returns the line of a record: a dict with some of the columns, and perhaps `weights`."""
        text = "  ".join(
            format(record[key], form).rjust(width) if key in record else " " * width
            for key, (_, width, form) in self.columns.items()
        )
        name = record.get("weights", "")  # of final weights, in place of the step
        return f"{(name + text[len(name) :]).rstrip()}  {remark}".rstrip()

    def heading(self):
        return "  ".join(f"{name:>{width}}" for name, width, _ in self.columns.values())

    def add(self, record, remark=""):
        self.write(self.row(record, remark))


class Meter(keras.callbacks.Callback):
    """Measures a training. It is the first callback: the others find its numbers in the logs.

    Args:
        state: `TrainingState`, kept up to date by `SaveAndStop`.
        training: `TrainingConfig`.
        batches_per_epoch: of the data.

    Attributes:
        values: the numbers that were read last, by their names in a record.
        read_at: when that was.
    """

    def __init__(self, state, training, batches_per_epoch):
        super().__init__()
        self.state = state
        self.training = training
        self.tokens_per_step = state.num_target_tokens / batches_per_epoch
        self.values = {}
        self.read_at = 0.0
        self.first = self.last = None  # (time, number) of the first and the last step
        self.begin("compiling the first step")

    def begin(self, what):
        """Says what takes time now, until the next step has ended."""
        self.doing, self.since = what, time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        self.last = now, self.state.step + 1  # `SaveAndStop` has not counted it yet
        if self.first is None:
            self.first = self.last
        if batch == 0:  # it may have been compiled, so the speed is that of the steps after it
            self.first_of_epoch = now
        elif now > self.first_of_epoch:
            seconds = (now - self.first_of_epoch) / batch
            self.values["tokens_per_second"] = self.tokens_per_step / seconds
        self.doing = None
        if now >= self.read_at + READ_SECONDS:
            self._read(logs)

    def on_test_begin(self, logs=None):
        self.begin("validating")

    def on_epoch_end(self, epoch, logs=None):
        self._read(logs)
        logs.update(self.values)

    def _read(self, logs):
        """Reads the numbers of the last step; with JAX, takes the model's variables back for it."""
        optimizer = self.model.optimizer
        adam = getattr(optimizer, "inner_optimizer", optimizer)
        numbers = {"learning_rate": optimizer.learning_rate, "gradient_norm": adam.gradient_norm}
        for name, number in numbers.items():
            self.values[name] = float(keras.ops.convert_to_numpy(number))
        if "loss" in logs:
            self.values["loss"] = float(logs["loss"])
        self.read_at = time.perf_counter()

    def now(self):
        """Returns a record, and a remark on what takes time or how much is left."""
        record = {"step": self.state.step, "minutes": self.state.minutes}
        if self.doing:
            return record, f"{self.doing}, {time.perf_counter() - self.since:.0f} s so far"
        seconds, steps = np.subtract(self.last, self.first)
        rate = seconds / steps if steps else None
        return record | self.values, left(self.state, self.training, rate)


def left(state, training, seconds_per_step):
    """Returns which time and share of a training are left, until its steps or minutes are over.

    Args:
        state: `TrainingState`.
        training: `TrainingConfig`.
        seconds_per_step: with all that comes between the steps; None: unknown.
    """
    seconds, shares = [], [state.step / training.max_steps]
    if seconds_per_step is not None:
        seconds.append((training.max_steps - state.step) * seconds_per_step)
    if training.max_minutes is not None:
        seconds.append(60 * (training.max_minutes - state.minutes))
        shares.append(state.minutes / training.max_minutes)
    if not seconds:
        return ""
    time_left = tqdm.tqdm.format_interval(max(0, min(seconds)))
    return f"{time_left} left, {min(1, max(shares)):.0%} done"


class Display:
    """Shows how a training goes, in this context, from a thread of its own.

    A terminal has a row at its end that changes; elsewhere there is a row within half a minute, and
    then each minute.

    Args:
        meter: `Meter`.
        table: `Table`.
    """

    def __init__(self, meter, table):
        self.meter = meter
        self.table = table

    def __enter__(self):
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def __exit__(self, *_):
        self._is_done.set()
        self._thread.join()

    def _show(self):
        with contextlib.suppress(OSError):  # perhaps nobody reads it any more
            if sys.stderr.isatty():
                with tqdm.tqdm(bar_format="{desc}", leave=False, dynamic_ncols=True) as line:
                    while not self._is_done.wait(REFRESH_SECONDS):
                        line.set_description_str(self.table.row(*self.meter.now()))
            elif not self._is_done.wait(FIRST_ROW_SECONDS):
                self.table.add(*self.meter.now())
                while not self._is_done.wait(ROW_SECONDS):
                    self.table.add(*self.meter.now())
