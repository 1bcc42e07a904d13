"""The optimizer of a training: Adam, which may keep a moving average of the weights.

The average is validated and kept instead of the weights. Keras's own (`use_ema`) validates the
weights and not their average, and replaces the weights by it at the end of each `model.fit`. A
training here is several of them if it is interrupted, and would go on from other weights.

What this file relies on in Keras 3.15 that is not part of its public interface:
`optimizer._trainable_variables`, the variables that `build` was called with.
"""

import keras
import numpy as np
from keras import ops

from keras_transformer.training.schedules import Decay


def make_optimizer(training, schedule):
    """Returns the Adam of the paper (section 5.3).

    Its variable `gradient_norm` is the norm of the last step's gradient over all weights, before it
    is clipped. The end of a `Decay` becomes its variable too.
    """
    settings = dict(beta_1=0.9, beta_2=0.98, epsilon=1e-9, global_clipnorm=training.clip_norm)
    if training.ema is None:
        adam = keras.optimizers.Adam(schedule, **settings)
    else:
        adam = AveragingAdam(schedule, decay=training.ema, **settings)
    number = dict(shape=(), dtype="float32", aggregation="only_first_replica")
    if isinstance(schedule, Decay):
        end = keras.initializers.Constant(schedule.num_steps)
        schedule.num_steps = adam.add_variable(**number, initializer=end, name="num_steps")
    adam.gradient_norm = adam.add_variable(**number, name="gradient_norm")
    # not a subclass, of which Keras on PyTorch would update one weight at a time
    apply = adam.apply

    def apply_with_norm(gradients, trainable_variables=None):
        # flat, since the gradient of a lookup may have one row of a table several times
        flat = (ops.reshape(each, (-1,)) for each in gradients if each is not None)
        adam.gradient_norm.assign(ops.sqrt(sum(ops.sum(ops.square(each)) for each in flat)))
        return apply(gradients, trainable_variables)

    adam.apply = apply_with_norm
    return adam


class AveragingAdam(keras.optimizers.Adam):
    """Adam that also keeps an exponential moving average of the weights.

    average = d average + (1 - d) weight after each step, with d = min(decay, (t - 1) / (t + 8)) at
    step t. The smaller factor of the first steps lets the average forget the initial weights, as
    `num_updates` does in TensorFlow's ExponentialMovingAverage.

    Source: Polyak and Juditsky, 1992, https://doi.org/10.1137/0330046, for the mean of all steps.

    Args:
        decay: number from 0 to below 1, such as 0.999: about the last 1 / (1 - decay) steps count.
        arguments: those of `keras.optimizers.Adam`.

    Attributes:
        averages: list of variables, one for each trainable variable, once it is built.
    """

    def __init__(self, *arguments, decay=0.999, **keyword_arguments):
        super().__init__(*arguments, **keyword_arguments)
        self.decay = decay

    def build(self, variables):
        super().build(variables)
        self.averages = self.add_optimizer_variables(variables, "average")

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        step = ops.cast(self.iterations, "float32")  # counted from 1
        decay = ops.minimum(self.decay, (step - 1.0) / (step + 8.0))
        for variable, average in zip(self._trainable_variables, self.averages, strict=True):
            difference = ops.subtract(variable, average)
            average.assign(ops.add(average, (1.0 - decay) * difference))

    def get_config(self):
        return {**super().get_config(), "decay": self.decay}


class AveragesInPlace(keras.callbacks.Callback):
    """Exchanges the weights and their averages from a validation to the checkpoint after it.

    So all that is validated, translated with and saved as weights are the averages, and a
    checkpoint has the weights where the optimizer keeps the averages. In the list of callbacks it
    comes after `SaveAndStop`.

    Args:
        model: compiled with an `AveragingAdam`.
        in_place: whether the model has the averages now, as after it has read a checkpoint.
    """

    def __init__(self, model, in_place):
        super().__init__()
        self.set_model(model)
        self.in_place = in_place

    def put_in(self):
        """Gives the model the averages, unless it has them."""
        if not self.in_place:
            self._exchange()

    def take_out(self):
        """Gives the model its own weights, unless it has them."""
        if self.in_place:
            self._exchange()

    def _exchange(self):
        model = self.model  # with JAX, this takes the variables back from the training loop
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        pairs = zip(model.trainable_variables, optimizer.averages, strict=True)
        for variable, average in pairs:
            weight = np.array(variable)
            variable.assign(np.array(average))
            average.assign(weight)
        self.in_place = not self.in_place

    def on_train_begin(self, logs=None):
        self.take_out()

    def on_test_begin(self, logs=None):
        self.put_in()

    def on_epoch_end(self, epoch, logs=None):
        self.take_out()
