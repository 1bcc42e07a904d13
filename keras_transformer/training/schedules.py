"""Learning-rate schedules with a warm-up. Steps are counted from 1, as in the paper."""

import math
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


def _warmup_then_decay(step, warmup_steps):
    step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
    return ops.minimum(ops.rsqrt(step), step * warmup_steps**-1.5)


def _check_positive(**values):
    for name, value in values.items():
        if value <= 0:
            raise InputError(f"{name} must be above 0. Received: {name}={value}.")
