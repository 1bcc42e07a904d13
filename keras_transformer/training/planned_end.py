"""The step at which a training will end, for a learning rate that falls to zero there."""

import math

import keras

FIRST_MEASUREMENT = 8
"""Steps after the first, which is slow, until the speed is measured for the first time."""


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
        elif self.is_first_epoch and _is_power_of_two(steps := now[0] - self.first[0]):
            if steps >= FIRST_MEASUREMENT:
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
            self.schedule.num_steps.assign(planned_end(self.state, self.config))


def planned_end(state, config):
    """Returns the step at which a training will end.

    Args:
        state: `TrainingState`.
        config: `TrainingConfig`.
    """
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


def _is_power_of_two(number):
    return number > 0 and number & (number - 1) == 0
