"""Steps of `fit` that are divided among replicas and micro-batches, with exact gradients.

The loss of a step is the sum over its target tokens, divided by their number in the whole batch.
The weights in the data hold that division (`data.TranslationBatches`), so the gradients of all rows
are summed, on whichever replica and in whichever micro-batch they are, and nothing is averaged.

What this file relies on in Keras 3.15 that is not part of its public interface; tests in
`test_gradient_accumulation.py` fail if Keras changes one of these:

- `optimizer._all_reduce_sum_gradients(grads_and_vars)`: the only place where the optimizer sums
  gradients over the replicas. It is looked up on the optimizer in every update, so an attribute of
  the optimizer takes the method's place.
- `model._loss_tracker`: the metric `loss`, to which each step adds its loss.
- `model._maybe_symbolic_build(...)`: called once by `fit` and `evaluate` before their first step.
- `model.distribute_strategy`: the strategy in whose scope the model was created.
"""

import keras
import tensorflow as tf
from keras import tree


def with_divided_step(model_class, num_parts=1):
    """Returns a subclass of a `TokenModel` whose training steps are divided.

    Args:
        model_class: subclass of `TokenModel`.
        num_parts: number of micro-batches per step on each replica. They are computed one after
            another, with the memory of one.
    """
    return type("DividedModel", (DividedStep, model_class), {"num_parts": num_parts})


class DividedStep:
    """Lets any `TokenModel` train on several replicas, or in several micro-batches per step.

    A mix-in that stands before the model's class, see `with_divided_step`. It differs from Keras
    3.15 as follows:

    - It sums the gradients of the micro-batches and applies them once. Keras takes the mean over
      batches of unequal numbers of tokens, and cannot accumulate under MirroredStrategy
      (https://github.com/keras-team/keras/issues/20582).
    - It sums the gradients over the replicas before they are clipped and checked for numbers that
      are not finite. Keras does both on each replica
      (https://github.com/tensorflow/tensorflow/issues/33929).
    - A step returns the results of the first replica. Keras reduces them along an axis that scalars
      do not have (https://github.com/keras-team/keras/issues/20585).
    - It reads no batch to build the model, which must be built already. Keras takes the mean of a
      batch over the replicas, which fails where their shapes differ, and turns ids into floats.
    """

    num_parts = 1

    def compile(self, optimizer, *args, **kwargs):
        super().compile(optimizer, *args, **kwargs)
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        if not hasattr(inner, "_all_reduce_sum_gradients"):
            raise RuntimeError(f"Keras {keras.__version__} would sum the gradients twice")
        inner._all_reduce_sum_gradients = list  # returns them as they are: `train_step` sums them

    def train_step(self, data):
        loss, gradients = self._summed_over_parts(data)
        replica = tf.distribute.get_replica_context()
        loss, rows, *gradients = replica.all_reduce("SUM", [loss, _num_rows(data), *gradients])
        self._loss_tracker.update_state(loss, sample_weight=rows)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return self.get_metrics_result()

    def test_step(self, data):
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        with self._step_on(data, training=False):
            predictions = self(inputs, training=False)
            loss = self.compute_loss(inputs, labels, predictions, weights, training=False)
        self.compute_metrics(inputs, labels, predictions, weights)
        replica = tf.distribute.get_replica_context()
        loss, rows = replica.all_reduce("SUM", [loss, _num_rows(data)])
        self._loss_tracker.update_state(loss, sample_weight=rows)
        return self.get_metrics_result()

    def _summed_over_parts(self, data):
        """Returns the loss of all rows and its gradients, computed in micro-batches."""
        if self.num_parts == 1:
            return self._gradients(data)
        parts = tree.map_structure(
            lambda x: tf.reshape(x, tf.concat([[self.num_parts, -1], tf.shape(x)[1:]], 0)), data
        )

        def add_part(part, *sums):
            loss, gradients = self._gradients(tree.map_structure(lambda x: x[part], parts))
            return part + 1, *(a + b for a, b in zip(sums, [loss, *gradients], strict=True))

        zeros = [tf.zeros([])] + [tf.zeros(v.shape, v.dtype) for v in self.trainable_weights]
        _, loss, *gradients = tf.while_loop(
            lambda part, *_: part < self.num_parts,
            add_part,
            (0, *zeros),
            parallel_iterations=1,  # otherwise all parts would be in memory at once
        )
        return loss, gradients

    def _gradients(self, data):
        """Returns the loss of some rows and its gradients; updates the metrics."""
        data = self.repeated(data)
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape, self._step_on(data, training=True):
            predictions = self(inputs, training=True)
            loss = self.compute_loss(inputs, labels, predictions, weights, training=True)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_weights, unconnected_gradients="zero")
        self.compute_metrics(inputs, labels, predictions, weights)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            self.train_function = self._on_replicas(self.train_step)

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            self.test_function = self._on_replicas(self.test_step)

    def _on_replicas(self, step):
        strategy = self.distribute_strategy
        if self.jit_compile:
            step = tf.function(step, jit_compile=True, autograph=False)

        @tf.function(reduce_retracing=True, autograph=False)
        def on_next(iterator):
            results = strategy.run(step, args=(iterator.get_next(),))
            return tree.map_structure(lambda x: strategy.experimental_local_results(x)[0], results)

        return on_next

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        pass


def _num_rows(data):
    """Returns the number of rows that hold at least one token, as a float."""
    _, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
    return tf.math.count_nonzero(tf.reduce_any(labels != 0, axis=-1), dtype=tf.float32)
