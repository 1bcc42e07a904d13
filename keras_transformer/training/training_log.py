"""The log of a training: `metrics.jsonl`, and the same for TensorBoard."""

import json
import time

import keras

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing

TENSORBOARD_SECONDS = 10.0
"""Between two points of a curve of the training."""
TENSORBOARD_SAMPLES = 5
"""Sentences whose translations TensorBoard shows."""


class Log(keras.callbacks.Callback):
    """Writes each validation to a file of JSON lines, and as a row of text.

    Args:
        path: the file.
        state: `TrainingState`, kept up to date by `SaveAndStop`, which must come later in the list
            of callbacks: a line without its checkpoint is dropped when training goes on, but a
            missing line would stay missing.
        task: the task, see `TranslationTask`.
        table: `Table`.
    """

    def __init__(self, path, state, task, table):
        super().__init__()
        self.path = path
        self.state = state
        self.task = task
        self.batches_per_epoch = len(task.batches)
        self.table = table
        self.epoch_begin = self.validation_begin = None

    def discard_lost_lines(self, is_at_end=False):
        """Drops the lines logged after the checkpoint from which this training goes on.

        Args:
            is_at_end: whether no step is left. The scores of the final weights, which a killed
                process may have logged, are then dropped too, as they will be logged again.
        """
        if self.path.exists():
            last = self.state.step - self.state.in_validation  # that validation will be repeated
            kept = [
                line
                for line in _lines(self.path)
                if (step := _step(line)) is not None
                and step <= last
                and not (is_at_end and step == last and "weights" in json.loads(line))
            ]
            with replacing(self.path) as partial:
                partial.write_text("".join(f"{line}\n" for line in kept))

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch_begin = time.monotonic()

    def on_test_begin(self, logs=None):
        self.validation_begin = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        values = dict(logs)
        if self.epoch_begin is not None:  # else only an interrupted validation was done again
            now = time.monotonic()
            share = (now - self.validation_begin) / (now - self.epoch_begin)
            values["validation_share"] = round(share, 4)  # of the time since the last validation
        is_best = self.task.rank(values) > (self.state.best_score, -self.state.best_loss)
        self.record(values, "best" if is_best else "")

    def record(self, values, remark=""):
        """Writes one line of values, with the step, the epochs of the data and the minutes."""
        state = self.state
        record = {
            "step": state.step,
            "epoch": round(state.step / self.batches_per_epoch, 2),
            "minutes": round(state.minutes, 3),
        }
        record |= {
            name: float(value)
            if isinstance(value, int | float) or hasattr(value, "dtype")
            else value
            for name, value in values.items()
        }
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.table.add(values if "weights" in values else record, remark)
        of_parts = [
            f"{name.partition('/')[2]} {record[name]:.2f}"
            for name in record
            if name.startswith(f"{self.task.monitor}/")
        ]
        if of_parts:
            self.table.write(f"         {self.task.score_name}: {', '.join(of_parts)}")


def check_log(path):
    """Raises `InputError` if a file holds anything but the records of a `Log`."""
    for number, line in enumerate(_lines(path)[:-1], start=1):  # the last may be incomplete
        if _step(line) is None:
            raise InputError(
                f"Expected a JSON object with a step. Received: {path}, line {number}: "
                f"{line[:50]!r}. Remove this line to go on training."
            )


def _lines(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _step(line):
    """Returns the step of a record, or None if the line is not a record."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


class TensorBoard(keras.callbacks.TensorBoard):
    """Writes a training for TensorBoard by steps, where Keras's class has epochs.

    A curve has a point at each validation, and those of the training about every ten seconds. This
    class uses `_train_writer` and `_val_writer` of Keras 3.15, which are not public.

    Args:
        path: the directory.
        state: `TrainingState`, kept up to date by `SaveAndStop`, which must come before.
        meter: `Meter`.
        task: the task, see `TranslationTask`.
    """

    def __init__(self, path, state, meter, task):
        super().__init__(path, write_graph=False)
        self.state = state
        self.meter = meter
        self.task = task
        self.written_at = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        pass

    def on_train_batch_end(self, batch, logs=None):
        if self.meter.read_at >= self.written_at + TENSORBOARD_SECONDS:  # it was read in this step
            self.written_at = self.meter.read_at
            self._write(self._train_writer, self.meter.values)

    def on_test_end(self, logs=None):
        pass

    def on_epoch_end(self, epoch, logs=None):
        of_training = {name: logs[name] for name in logs if not name.startswith("val_")}
        of_validation = {name[4:]: logs[name] for name in logs if name.startswith("val_")}
        self._write(self._train_writer, of_training)
        self._write(self._val_writer, of_validation)
        if lines := self.task.sample_lines(TENSORBOARD_SAMPLES):
            with self._val_writer.as_default():  # four spaces mark code, which keeps the columns
                text = "\n".join(f"    {line}" for line in lines)
                self.summary.text("translations", text, step=self.state.step)
            self._val_writer.flush()

    def _write(self, writer, values):
        with writer.as_default():
            for name, value in values.items():
                self.summary.scalar(name, value, step=self.state.step)
        writer.flush()
