"""Learning-rate schedules with a warm-up. Steps are counted from 1, as in the paper."""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.types import Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    Source: Vaswani et al., 2017, eq. 3, https://arxiv.org/abs/1706.03762. The maximum, at step
    `warmup_steps`, is (d_model * warmup_steps)^-0.5.

    Args:
        d_model: width of the model.
        warmup_steps: number of steps in which the rate rises; 4,000 in the paper.
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000) -> None:
        super().__init__()
        _check_positive(d_model=d_model, warmup_steps=warmup_steps)
        self.d_model = d_model
        self.warmup_steps = warmup_steps

    def __call__(self, step: Tensor) -> Tensor:
        return self.d_model**-0.5 * _warmup_then_decay(step, self.warmup_steps)

    def get_config(self) -> dict[str, Any]:
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps}


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
        scale = self.peak_learning_rate * self.warmup_steps**0.5
        return scale * _warmup_then_decay(step, self.warmup_steps)

    def get_config(self) -> dict[str, Any]:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "warmup_steps": self.warmup_steps,
        }


def schedule_of(training, d_model):
    """Returns the schedule that a `TrainingConfig` asks for, of a model of width `d_model`."""
    if training.schedule == "noam":
        return NoamSchedule(d_model, training.warmup_steps)
    return InverseSquareRoot(training.peak_learning_rate, training.warmup_steps)


def _warmup_then_decay(step, warmup_steps):
    step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
    return ops.minimum(ops.rsqrt(step), step * warmup_steps**-1.5)


def _check_positive(**values):
    for name, value in values.items():
        if value <= 0:
            raise InputError(f"{name} must be above 0. Received: {name}={value}.")
