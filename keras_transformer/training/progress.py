"""Callbacks that only `train` uses: progress bar, log, time limit and checkpoints."""

import json
import math
import signal
import time

import keras
import tqdm

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.runs.checkpoints import all_finite
from keras_transformer.training.interruption import Interrupted


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

    def on_train_batch_end(self, batch, logs=None):
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

    def drop_what_was_lost(self, is_at_end=False):
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


class ObeyAtOnce(keras.callbacks.Callback):
    """Lets a signal stop a validation immediately, since a validation may take long.

    In the list of callbacks it comes after those that compute the score, the last part of a
    validation, and before those that write. It is not used with several workers: they agree to stop
    after a step or after a whole validation.

    Args:
        interruption: `Interruption`.
    """

    def __init__(self, interruption):
        super().__init__()
        self.interruption = interruption

    def on_test_batch_begin(self, batch, logs=None):
        # not when the validation begins: weights and averages are exchanged then
        self.interruption.obey_at_once()

    def on_epoch_end(self, epoch, logs=None):
        self.interruption.at_once = False


class TensorBoardOfEpochs(keras.callbacks.TensorBoard):
    """Keras's `TensorBoard` without what it does in each step, which is to write nothing."""

    def on_train_batch_begin(self, batch, logs=None):
        pass

    def on_train_batch_end(self, batch, logs=None):
        pass


class SaveAndStop(keras.callbacks.Callback):
    """Saves a checkpoint after each validation, and stops the training at its limits.

    Args:
        checkpoints: `Checkpoints`.
        state: `TrainingState`, which this callback keeps up to date.
        task: the task, see `TranslationTask`.
        config: `TrainingConfig`.
        interruption: `Interruption`; a signal stops the training after the current step.
        devices: `Distribution`.
        averages: `AveragesInPlace`, if a checkpoint has averages of the weights; or None.
    Attributes:
        limit: the setting that has ended the training, "max_steps", "max_minutes" or "patience",
            or None. `reason` says it in words.
    Raises:
        FloatingPointError: the loss, that of a validation or a weight is no longer finite.
    """

    def __init__(self, checkpoints, state, task, config, interruption, devices, averages=None):
        super().__init__()
        self.checkpoints = checkpoints
        self.state = state
        self.task = task
        self.config = config
        self.interruption = interruption
        self.devices = devices
        self.averages = averages
        self.start = state.step, (state.epoch, state.index)
        self.minutes_before = state.minutes
        self.started = time.monotonic()
        self.signal_number = None  # of a signal to any worker
        self.limit = self.reason = None
        self.training_logs = state.training_logs  # of an epoch whose validation was interrupted
        self.unchecked_loss = None  # of the last step
        if state.validated:  # otherwise a step and its validation come first
            self._find_limit()  # a killed process may have reached it already

    def _find_limit(self):
        """Sets `limit` and `reason` if a setting ends the training now."""
        config, state = self.config, self.state
        if config.max_minutes is not None and state.minutes >= config.max_minutes:
            self.limit, self.reason = "max_minutes", f"{config.max_minutes:g} minutes are over"
        if config.patience and state.validations_without_better >= config.patience:
            self.limit = "patience"
            self.reason = f"no better {self.task.score_name} in {config.patience} validations"
        if state.step >= config.max_steps:
            self.limit, self.reason = "max_steps", f"{state.step:,} steps are done"
        if self.limit is not None and self.model is not None:
            self.model.stop_training = True  # `fit` validates and saves first

    def on_train_batch_end(self, batch, logs=None):
        # To read the loss of this step is to wait until the device has computed it. That of the
        # step before is there already, and the device computes while the next step is prepared.
        loss, self.unchecked_loss = self.unchecked_loss, logs["loss"]
        if self._agree(diverges=loss is not None and not math.isfinite(loss)):
            raise self._diverged("the loss is")
        self.state.step += 1
        self.training_logs = logs
        self._find_limit()
        is_due = self.limit is not None or self.state.step % self.config.checkpoint_every == 0
        if is_due:  # a validation would be useless
            if self._agree(diverges=not math.isfinite(logs["loss"])):
                raise self._diverged("the loss is")
            self.unchecked_loss = None
            if not all_finite(self.model.weights):
                raise self._diverged("a weight is")
        if self.signal_number is not None and not is_due:
            self.save(validated=False)
            raise Interrupted(self.signal_number)

    def _agree(self, diverges=False):
        """Gives all workers the chief's time, and a signal that any of them has received.

        Returns:
            Whether `diverges` is true on any worker.
        """
        minutes = self.minutes_before + (time.monotonic() - self.started) / 60
        own_signal = self.interruption.signal_number
        told = [minutes * self.devices.is_chief, own_signal is not None, diverges]
        self.state.minutes, signals, diverging = (float(x) for x in self.devices.total(told))
        if signals:
            self.signal_number = own_signal or signal.SIGTERM
        return diverging > 0

    def _diverged(self, what):
        learning_rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        newest = self.checkpoints.newest()
        remedy = "Raise training.warmup_steps, or set training.clip_norm"
        if self.config.schedule != "noam":
            remedy = f"Lower training.peak_learning_rate. {remedy}"
        if self.config.r_drop:
            remedy = f"Lower training.r_drop. {remedy}"
        goes_on = f"the same command goes on from {newest}" if newest else "there is no checkpoint"
        return FloatingPointError(
            f"{what} not finite at step {self.state.step:,}, at a learning rate of "
            f"{learning_rate:.3g}: the training diverges. {remedy}; {goes_on}"
        )

    def on_test_end(self, logs=None):
        # before the search, which may not end well with such a model
        if self._agree(diverges=not math.isfinite(logs["loss"])):
            raise self._diverged("the validation loss is")

    def on_epoch_end(self, epoch, logs=None):
        state = self.state
        self._agree()
        own_score = logs[self.task.monitor] if self.devices.is_chief else 0.0
        score = float(self.devices.total(own_score))  # the chief's, on every worker
        if score > state.best_score:
            state.best_score, state.best_step = score, state.step
            state.validations_without_better = 0
        else:
            state.validations_without_better += 1
        self.save(validated=True)
        if self.signal_number is not None:
            raise Interrupted(self.signal_number)
        self._find_limit()

    def save(self, validated, in_validation=False):
        first_step, position = self.start
        state = self.state
        state.validated, state.in_validation = validated, in_validation
        logs = self.training_logs if in_validation else {}
        state.training_logs = {name: float(value) for name, value in logs.items()}
        state.epoch, state.index = self.task.batches.position_after(
            position, state.step - first_step
        )
        if state.best_step == 0:  # no validation yet
            state.best_step = state.step
        if self.averages is not None:
            self.averages.put_in()  # nothing to do after a validation
        if self.devices.is_chief:
            try:
                self.checkpoints.save(self.model, state, self.config.keep_checkpoints)
            except FloatingPointError:
                raise self._diverged("the weights or the optimizer's state are") from None
