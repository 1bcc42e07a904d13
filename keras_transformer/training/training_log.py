"""What shows how a training goes: the progress bar, the log and TensorBoard."""

import json
import time

import keras
import tqdm

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing


class ProgressBar(keras.callbacks.Callback):
    """Shows steps and loss on standard error, if that is a terminal.

    Args:
        state: `TrainingState`, kept up to date by `SaveAndStop`.
        training: `TrainingConfig`.
    """

    def __init__(self, state, training):
        super().__init__()
        self.state = state
        self.training = training
        self.bar = None
        self.last_loss = None  # of the step before, for which nobody has to wait

    def on_train_begin(self, logs=None):
        if self.bar is None:
            self.bar = _Bar(self.state, self.training)
            self.bar.set_postfix_str("compiling the first step")

    def on_train_batch_end(self, batch, logs=None):
        if self.last_loss is None:
            self.bar.set_postfix_str("", refresh=False)
        self.bar.update()
        if self.last_loss is not None and not self.bar.disable:
            self.bar.set_postfix(loss=f"{float(self.last_loss):.3f}", refresh=False)
        self.last_loss = logs["loss"]

    def close(self):
        if self.bar is not None:
            self.bar.close()


class _Bar(tqdm.tqdm):
    """Shows the time that is left: until the last step or the last minute, whichever is sooner."""

    def __init__(self, state, training):
        self.state = state
        self.training = training
        super().__init__(
            initial=state.step,
            total=training.max_steps,
            unit="step",
            disable=None,
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{time_left}, "
            "{rate_fmt}{postfix}]",
        )

    @property
    def format_dict(self):
        values = super().format_dict
        seconds_left = []
        if self.training.max_minutes is not None:
            seconds_left.append(60 * (self.training.max_minutes - self.state.minutes))
        if values["n"] > values["initial"]:
            rate = values["rate"] or (values["n"] - values["initial"]) / values["elapsed"]
            seconds_left.append((values["total"] - values["n"]) / rate)
        time_left = self.format_interval(max(0, min(seconds_left))) if seconds_left else "?"
        return {**values, "time_left": time_left}


class Log(keras.callbacks.Callback):
    """Writes each validation to a file of JSON lines, and as a line of text.

    Args:
        path: the file.
        state: `TrainingState`, kept up to date by `SaveAndStop`, which must come later in the list
            of callbacks: a line without its checkpoint is dropped when training goes on, but a
            missing line would stay missing.
        task: the task, see `TranslationTask`.
        write: called with one line of text.
    """

    def __init__(self, path, state, task, write):
        super().__init__()
        self.path = path
        self.state = state
        self.batches_per_epoch = len(task.batches)
        self.monitor = task.monitor
        self.write = write
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
        learning_rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        values = {"learning_rate": learning_rate, **(logs or {})}
        if self.epoch_begin is not None:  # else only an interrupted validation was done again
            now = time.monotonic()
            share = (now - self.validation_begin) / (now - self.epoch_begin)
            values["validation_share"] = round(share, 4)  # of the time since the last validation
        self.record(values)

    def record(self, values):
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
        shown = {
            "loss": "6.3f",
            "val_perplexity": "8.2f",
            "val_accuracy": "5.3f",
            self.monitor: "5.2f",
            **{name: "5.2f" for name in record if name.startswith(f"{self.monitor}/")},
        }
        numbers = [
            f"{name} {record[name]:{form}}" for name, form in shown.items() if name in record
        ]
        which = record.get("weights", f"step {state.step:>7,}")
        self.write(f"{which}  {state.minutes:5.1f} min  " + "  ".join(numbers))


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


class TensorBoardOfEpochs(keras.callbacks.TensorBoard):
    """Keras's `TensorBoard` without what it does in each step, which is to write nothing."""

    def on_train_batch_begin(self, batch, logs=None):
        pass

    def on_train_batch_end(self, batch, logs=None):
        pass
