"""Adam with one operation for each weight where TensorFlow has one."""

from typing import TYPE_CHECKING, Any

import keras

from keras_transformer import backend
from keras_transformer.types import Tensor

# On PyTorch, what `keras.optimizers.Adam(...)` gives is of a class of its own, which updates all
# weights together; a subclass of the public one would update them one by one.
if TYPE_CHECKING:
    from keras.optimizers import Adam as KerasAdam
else:
    KerasAdam = type(keras.optimizers.Adam.__new__(keras.optimizers.Adam))


@keras.saving.register_keras_serializable("keras_transformer")
class Adam(KerasAdam):
    """Keras's Adam, with the same arguments, variables and results, up to rounding.

    On TensorFlow without another device than CPUs, one operation updates a weight and both its
    moments in one pass over memory; Keras has a dozen operations. A step of `tiny` takes 3 % less
    time, one of `base` 1 % (benchmarks/README.md). Elsewhere, Keras's own step is taken, which on
    PyTorch updates all weights together.

    Source: Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980, algorithm 1, in the order of
    computation that section 2 gives.

    Args:
        arguments: those of `keras.optimizers.Adam`.

    Example:
        model.compile(
            Adam(0.001, beta_2=0.98, epsilon=1e-9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    """

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor | float) -> None:
        backend.adam_step(self, gradient, variable, learning_rate)
