"""`model.fit` from one checkpoint to the next, with the callback that saves and stops."""

import math
import signal
import time

import keras

from keras_transformer import backend
from keras_transformer.runs.model_state import all_finite
from keras_transformer.training.interruption import Interrupted

LOSS_FALLS = 0.999
"""Times the lowest validation loss that a new one must be below to count as better."""


class StepCallbacks(keras.callbacks.CallbackList):
    """A `CallbackList` that gives callbacks the logs of a step as the step has returned them.

    Keras makes numbers of them first, and so waits in every step until the device has computed it.
    A device that need not wait for the next step computes while the host prepares it.
    """

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


def fit(model, batches, valid_batches, training, saver, callbacks, devices):
    """Runs `model.fit` with one Keras epoch from each checkpoint to the next.

    All epochs of one `model.fit` have the same length, so the shorter epochs, after an interruption
    and before the last step, have a `model.fit` of their own.

    Args:
        batches, valid_batches: the task's.
        training: `TrainingConfig`.
        saver: `SaveAndStop`, one of the callbacks, which keeps its `state` up to date.
    Raises:
        Interrupted: a signal came during a validation; the work is saved.
    """
    state = saver.state
    every = training.checkpoint_every
    validation_data = _validation_data(valid_batches, training, devices)
    to_checkpoint = every - state.step % every  # fewer than `every` after an interruption
    try:
        if state.in_validation:  # the validation that an interruption has ended comes first
            callback_list = keras.callbacks.CallbackList(callbacks, model=model)
            logs = evaluate(model, valid_batches, training, devices, callback_list)
            epoch = (state.step - 1) // every
            callback_list.on_epoch_end(epoch, {**state.training_logs, **logs})
        while saver.limit is None:
            steps = min(to_checkpoint, training.max_steps - state.step)
            num_epochs = 1 if steps < every else (training.max_steps - state.step) // every
            dataset = batches.dataset(
                epoch=state.epoch, index=state.index, row_multiple=row_multiple(training, devices)
            )
            model.fit(
                devices.dataset(dataset),
                steps_per_epoch=steps,
                initial_epoch=state.step // every,
                epochs=state.step // every + num_epochs,
                validation_data=validation_data,
                validation_steps=len(valid_batches),
                callbacks=StepCallbacks(callbacks, add_history=True, model=model),
                shuffle=False,  # the batches are shuffled already; True makes Keras warn
                verbose=0,
            )
            to_checkpoint = every
    except Exception as error:
        if batches.failure is not None:  # of which `tf.data` has made an error of its own
            raise batches.failure from None
        signal_number = saver.interruption.signal_number
        if signal_number is None or not saver.interruption.at_once:
            raise
        # `error` may be one that Keras raised in place of `Interrupted`
        saver.save(validated=False, in_validation=True)
        raise Interrupted(signal_number) from error


def evaluate(model, valid_batches, training, devices, callbacks=None):
    """Returns the metrics of the model on the validation data, "val_" before each name."""
    metrics = model.evaluate(
        _validation_data(valid_batches, training, devices),
        steps=len(valid_batches),
        callbacks=callbacks,
        return_dict=True,
        verbose=0,
    )
    return {f"val_{name}": value for name, value in metrics.items()}


def _validation_data(valid_batches, training, devices):
    rows = row_multiple(training, devices)
    return devices.dataset(valid_batches.dataset(repeat=False, row_multiple=rows))


def row_multiple(training, devices):
    """Returns the number of parts with equally many rows into which each batch is divided."""
    return devices.num_replicas * training.gradient_accumulation_steps


class SaveAndStop(keras.callbacks.Callback):
    """Saves a checkpoint after each validation, and stops the training at its limits.

    Args:
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
            self.reason = (
                f"no better {self.task.score_name} and no lower loss "
                f"in {config.patience} validations"
            )
        if state.step >= config.max_steps:
            self.limit, self.reason = "max_steps", f"{state.step:,} steps are done"
        if self.limit is not None and self.model is not None:
            self.model.stop_training = True  # `fit` validates and saves first

    def on_train_batch_begin(self, batch, logs=None):
        backend.seed_step(self.config.seed, self.state.step)

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
        own_rank = self.task.rank(logs) if self.devices.is_chief else (0.0, 0.0)
        score, negative_loss = self.devices.total(own_rank).tolist()  # the chief's, on every worker
        state.validations_without_better += 1
        if score > state.best_score or -negative_loss < LOSS_FALLS * state.lowest_loss:
            state.validations_without_better = 0
            state.lowest_loss = min(-negative_loss, state.lowest_loss)
        if (score, negative_loss) > (state.best_score, -state.best_loss):
            state.best_score, state.best_loss, state.best_step = score, -negative_loss, state.step
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
