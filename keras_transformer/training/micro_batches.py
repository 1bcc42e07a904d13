"""A step in micro-batches on JAX and PyTorch; `gradient_accumulation.py` is for TensorFlow.

A step in parts needs the memory of one part, with its gradient. The weights in the data hold the
division by the tokens of the whole step, so the gradients of the parts are summed, and so are their
losses, of which Keras's metrics take the mean over the rows.

What this file relies on in Keras 3.15 that is not part of its public interface; the tests in
`test_micro_batches.py` fail if Keras changes one of these:

- on JAX, `model.compute_loss_and_updates` and `model._update_metrics_variables`;
- on PyTorch, `model._compute_loss` and `model._loss_tracker`.
"""

import keras
from keras import ops, tree


def with_micro_batches(model_class, num_parts):
    """Returns a subclass of a `TokenModel` whose training steps have `num_parts` micro-batches.

    The rows of each batch must be a multiple of `num_parts`.
    """
    steps = {"jax": StepOnJax, "torch": StepOnPyTorch}[keras.backend.backend()]
    return type("DividedModel", (steps, model_class), {"num_parts": num_parts})


def parts_of(data, num_parts):
    """Returns arrays with a new first axis of P parts, of which part 0 has the rows 0, P, 2 P ...

    If devices hold a block of the rows each, each of them has an equal share of every part.
    """

    def divide(x):
        return ops.swapaxes(ops.reshape(x, (-1, num_parts, *x.shape[1:])), 0, 1)

    return tree.map_structure(divide, data)


class StepOnJax:
    """A mix-in that stands before the model's class."""

    def train_step(self, state, data):
        import jax

        weights, others, of_optimizer, of_metrics = state
        gradients_of = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)

        def add_part(sums, part):
            gradients, others, of_metrics = sums
            part = self.repeated(part)
            x, labels, token_weights = keras.utils.unpack_x_y_sample_weight(part)
            with self._step_on(part, training=True):
                arguments = weights, others, of_metrics, x, labels, token_weights, True
                (_, found), more = gradients_of(*arguments, optimizer_variables=of_optimizer)
                loss, predictions, others, of_metrics = found
                found = loss * self.num_parts, x, labels, predictions, token_weights
                logs, of_metrics = self._update_metrics_variables(of_metrics, *found)
            return (jax.tree.map(jax.numpy.add, gradients, more), others, of_metrics), logs

        zeros = jax.tree.map(jax.numpy.zeros_like, weights)
        sums = zeros, others, of_metrics
        sums, logs = jax.lax.scan(add_part, sums, parts_of(data, self.num_parts))
        gradients, others, of_metrics = sums
        weights, of_optimizer = self.optimizer.stateless_apply(of_optimizer, gradients, weights)
        logs = jax.tree.map(lambda values: values[-1], logs)  # metrics after the last part
        return logs, (weights, others, of_optimizer, of_metrics)


class StepOnPyTorch:
    """As `StepOnJax`."""

    def train_step(self, data):
        import torch

        self.zero_grad()
        parts = parts_of(data, self.num_parts)
        for index in range(self.num_parts):
            logs = self._add_gradients(tree.map_structure(lambda x, i=index: x[i], parts))
        weights = self.trainable_weights[:]
        with torch.no_grad():
            self.optimizer.apply([weight.value.grad for weight in weights], weights)
        return logs

    def _add_gradients(self, data):
        """Adds the gradients of some rows to those of the weights; returns the metrics so far."""
        data = self.repeated(data)
        x, labels, token_weights = keras.utils.unpack_x_y_sample_weight(data)
        with self._step_on(data, training=True):
            predictions = self(x, training=True)
            loss = self._compute_loss(x, labels, predictions, token_weights, training=True)
            self._loss_tracker.update_state(loss * self.num_parts, sample_weight=len(labels))
            self.optimizer.scale_loss(loss).backward()
            return self.compute_metrics(x, labels, predictions, token_weights)
