"""Learning-rate schedules with a warm-up. Steps are counted from 1, as in the paper."""

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.types import Tensor

FIRST_MEASUREMENT = 8
"""Steps after the first, which is slow, until the speed is measured for the first time."""


@keras.saving.register_keras_serializable("keras_transformer")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """peak_learning_rate * min(step / warmup_steps, sqrt(warmup_steps / step)).

    The curve of `NoamSchedule`, with a peak that is given instead of derived from the width, as in
    fairseq.

    Args:
        peak_learning_rate: the rate at step `warmup_steps`.
        warmup_steps: number of steps in which the rate rises.
    """

    def __init__(self, peak_learning_rate: float, warmup_steps: int = 4000) -> None:
        super().__init__()
        _check_positive(peak_learning_rate=peak_learning_rate, warmup_steps=warmup_steps)
        self.peak_learning_rate = peak_learning_rate
        self.warmup_steps = warmup_steps

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
        scale = self.peak_learning_rate * self.warmup_steps**0.5
        return scale * ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)

    def get_config(self) -> dict[str, Any]:
        return {"peak_learning_rate": self.peak_learning_rate, "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable("keras_transformer")
class NoamSchedule(InverseSquareRoot):
    """d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    Source: Vaswani et al., 2017, eq. 3, https://arxiv.org/abs/1706.03762. The maximum, at step
    `warmup_steps`, is (d_model * warmup_steps)^-0.5.

    Args:
        d_model: width of the model.
        warmup_steps: number of steps in which the rate rises; 4,000 in the paper.
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000) -> None:
        _check_positive(d_model=d_model, warmup_steps=warmup_steps)
        super().__init__((d_model * warmup_steps) ** -0.5, warmup_steps)
        self.d_model = d_model

    def get_config(self) -> dict[str, Any]:
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps}


class Decay(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that rises linearly and then falls to zero at the last step.

    A subclass defines `decay`.

    Args:
        peak_learning_rate: the rate at step `warmup_steps`.
        num_steps: the step at which the rate is zero; it stays zero after it. A Keras variable may
            take its place, for a training whose end is planned while it runs.
        warmup_steps: number of steps in which the rate rises. If they are more than half of
            `num_steps`, it falls from the half on, and the peak is not reached.
    """

    def __init__(self, peak_learning_rate: float, num_steps: int, warmup_steps: int = 4000) -> None:
        super().__init__()
        _check_positive(
            peak_learning_rate=peak_learning_rate, num_steps=num_steps, warmup_steps=warmup_steps
        )
        self.peak_learning_rate = peak_learning_rate
        self.num_steps: Any = num_steps
        self.warmup_steps = warmup_steps

    def decay(self, progress: Tensor) -> Tensor:
        """Returns the share of the peak that is left, from 1 to 0 while `progress` goes to 1."""
        raise NotImplementedError

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
        num_steps = ops.cast(self.num_steps, "float32")
        top = ops.minimum(float(self.warmup_steps), num_steps / 2)
        rise = ops.minimum(step, top) / self.warmup_steps
        progress = ops.clip((step - top) / (num_steps - top), 0.0, 1.0)
        return self.peak_learning_rate * rise * self.decay(progress)

    def get_config(self) -> dict[str, Any]:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "num_steps": int(ops.convert_to_numpy(self.num_steps)),
            "warmup_steps": self.warmup_steps,
        }


@keras.saving.register_keras_serializable("keras_transformer")
class LinearDecay(Decay):
    """peak_learning_rate * min(step / warmup_steps, (N - step) / (N - warmup_steps)), N num_steps.

    Sources: Devlin et al., 2019, appendix A.2, https://arxiv.org/abs/1810.04805; Li et al., 2020,
    who compare schedules for a given number of steps, https://arxiv.org/abs/1905.04753.

    Args: see `Decay`.
    """

    def decay(self, progress: Tensor) -> Tensor:
        return 1.0 - progress


@keras.saving.register_keras_serializable("keras_transformer")
class CosineDecay(Decay):
    """peak_learning_rate * step / warmup_steps, and then * (1 + cos(pi * progress)) / 2.

    The progress is (step - warmup_steps) / (num_steps - warmup_steps). Source: Loshchilov and
    Hutter, 2017, eq. 5, https://arxiv.org/abs/1608.03983, without restarts.

    Args: see `Decay`.
    """

    def decay(self, progress: Tensor) -> Tensor:
        return 0.5 * (1.0 + ops.cos(math.pi * progress))


def schedule_of(training, d_model):
    """Returns the schedule that a `TrainingConfig` asks for, of a model of width `d_model`."""
    if training.schedule == "noam":
        return NoamSchedule(d_model, training.warmup_steps)
    if training.schedule == "inverse_square_root":
        return InverseSquareRoot(training.peak_learning_rate, training.warmup_steps)
    kind = {"linear": LinearDecay, "cosine": CosineDecay}[training.schedule]
    return kind(training.peak_learning_rate, training.max_steps, training.warmup_steps)


def _check_positive(**values):
    for name, value in values.items():
        if value <= 0:
            raise InputError(f"{name} must be above 0. Received: {name}={value}.")


class PlannedEnd(keras.callbacks.Callback):
    """Sets the last step of a `Decay`, anew whenever more is known about the speed.

    Without a limit in minutes the last step is `max_steps`. With one it is the step that will be
    reached when the minutes are over, validations included. The speed is measured after a few
    steps, then after twice as many and so on until the first checkpoint, then between checkpoints.

    In the list of callbacks it comes after `SaveAndStop`, which counts the steps and the minutes.
    As these are the same on all workers, so is the plan.

    Args:
        schedule: a `Decay` whose `num_steps` is a variable.
        state: `TrainingState`. It keeps the speed, so that a training that goes on has a plan.
        config: `TrainingConfig`.
    """

    def __init__(self, schedule, state, config):
        super().__init__()
        self.schedule = schedule
        self.state = state
        self.config = config
        self.first = self.last = None  # (step, minutes) after steps of this Keras epoch
        self.steps = self.minutes = 0.0  # of earlier epochs, each counting half of the next
        self.is_first_epoch = True

    def on_train_begin(self, logs=None):
        self._plan()

    def on_train_batch_end(self, batch, logs=None):
        if self.config.max_minutes is None:
            return
        now = self.state.step, self.state.minutes
        if self.first is None:
            if self.last is not None:  # what came since then was a validation and this step
                seconds = 60 * (now[1] - self.last[1])
                if self.config.checkpoint_every == 1:  # each step has its validation
                    self.state.seconds_per_step = seconds
                else:
                    seconds -= self.state.seconds_per_step
                    self.state.seconds_per_validation = max(0.0, seconds)
                self._plan()
            self.first = now
        elif self.is_first_epoch and (steps := now[0] - self.first[0]) >= FIRST_MEASUREMENT:
            if steps.bit_count() == 1:  # a power of two
                self._measure(now)
                self._plan()
        self.last = now

    def on_test_begin(self, logs=None):
        if self.first is not None:
            self.steps, self.minutes = self._measure(self.last)
            self.first, self.is_first_epoch = None, False

    def _measure(self, now):
        """Takes the speed since the first step of the epoch, and before, into the state."""
        steps = self.steps / 2 + now[0] - self.first[0]
        minutes = self.minutes / 2 + now[1] - self.first[1]
        if steps > 0:
            self.state.seconds_per_step = 60 * minutes / steps
        return steps, minutes

    def _plan(self):
        if self.model is not None:  # with JAX, `self.model` takes variables back from the loop
            self.schedule.num_steps.assign(planned_last_step(self.state, self.config))


def planned_last_step(state, config):
    """Returns the step at which a training in this `TrainingState` will end."""
    if config.max_minutes is None or state.seconds_per_step == 0:
        return config.max_steps
    seconds = 60 * (config.max_minutes - state.minutes)
    every = config.checkpoint_every
    to_checkpoint = every - state.step % every
    steps = min(seconds / state.seconds_per_step, to_checkpoint)
    seconds -= to_checkpoint * state.seconds_per_step + state.seconds_per_validation
    if seconds > 0:  # the rest is after the next validation
        between = every * state.seconds_per_step + state.seconds_per_validation
        num_checkpoints, seconds = divmod(seconds, between)
        steps += num_checkpoints * every + min(seconds / state.seconds_per_step, every)
    return min(config.max_steps, max(1, state.step + max(0, math.ceil(steps))))
