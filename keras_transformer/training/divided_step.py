"""One exact step of `fit`, divided among replicas and into parts: where Keras 3 is set right.

The loss of a step is the sum over its target tokens divided by their number in the whole batch. The
data's weights hold that division (`data.TranslationBatches`), so gradients of rows are summed,
wherever the rows are, and nothing is averaged.
"""

import keras
import tensorflow as tf
from keras import tree

from keras_transformer.models import Transformer


class DividedTransformer(Transformer):
    """A `Transformer` that is trained on several replicas, or a part of the batch at a time.

    What it does otherwise than Keras 3.15:

    - the parts' gradients are summed and applied once; Keras averages batches of unequal numbers of
      tokens, and refuses to under MirroredStrategy
      (https://github.com/keras-team/keras/issues/20582);
    - gradients are summed over the replicas before they are clipped and looked through for what is
      not finite; Keras does both on each replica
      (https://github.com/tensorflow/tensorflow/issues/33929);
    - the step's own results are those of the first replica; Keras reduces them along an axis that
      scalars do not have (https://github.com/keras-team/keras/issues/20585);
    - no batch is read to build the model, which is built; Keras takes a mean over replicas of it,
      which fails where their shapes differ, and ids become floats.

    Args:
        args, kwargs: as of `Transformer`.
        num_parts: parts into which a replica divides its rows, one after the other: the memory is
            that of a part.
    """

    def __init__(self, *args, num_parts=1, **kwargs):
        super().__init__(*args, **kwargs)
        self.num_parts = num_parts

    def compile(self, optimizer, *args, **kwargs):
        super().compile(optimizer, *args, **kwargs)
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        inner._all_reduce_sum_gradients = list  # the step has summed them

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
        """Returns the loss of all rows and its gradients, a part of the rows at a time."""
        if self.num_parts == 1:
            return self._gradients(data)
        parts = tree.map_structure(
            lambda x: tf.reshape(x, [self.num_parts, -1, tf.shape(x)[1]]), data
        )

        def add_part(part, *sums):
            loss, gradients = self._gradients(tree.map_structure(lambda x: x[part], parts))
            return part + 1, *(a + b for a, b in zip(sums, [loss, *gradients], strict=True))

        zeros = [tf.zeros([])] + [tf.zeros(v.shape, v.dtype) for v in self.trainable_weights]
        _, loss, *gradients = tf.while_loop(
            lambda part, *_: part < self.num_parts,
            add_part,
            (0, *zeros),
            parallel_iterations=1,  # or the parts would be in memory together
        )
        return loss, gradients

    def _gradients(self, data):
        """Returns the loss of some rows and its gradients; counts them in the metrics."""
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
    """Returns how many rows are not of padding alone, a float."""
    _, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
    return tf.math.count_nonzero(tf.reduce_any(labels != 0, axis=-1), dtype=tf.float32)
