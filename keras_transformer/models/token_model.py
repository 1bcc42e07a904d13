"""Models that end in a projection on a vocabulary, trained without an array of all logits.

Shapes: B batch, T length, D d_model, V vocabulary.
"""

import contextlib
import contextvars
from typing import NamedTuple

import keras

from keras_transformer.backend import TokenLosses
from keras_transformer.layers.unquantized import Unquantized


class _Step(NamedTuple):
    """What the step of `fit` or `evaluate` that runs now compares its predictions with."""

    model: keras.Model
    labels: object
    weights: object
    training: bool


_STEP = contextvars.ContextVar("step", default=None)  # one of its own in each replica's thread


class TokenModel(Unquantized, keras.Model):
    """A model of tokens: `call` returns logits, which `fit` and `evaluate` do without.

    The output layer, the softmax and the loss are half the work of a small model, most of it
    passes over the logits. A model that is compiled with a loss that can tell the loss from the
    hidden states (`TokenCrossEntropy`), and with metrics that need no more than it finds on the way
    (`TokenAccuracy`, `Perplexity`), therefore never has them all in memory. Any other loss or
    metric gets the logits.

    A subclass ends its `call` in `self.predict_tokens(hidden)`.

    Attributes:
        needs_no_logits: whether the model was compiled so.
    """

    def project(self, hidden):
        """Returns the logits `(B, T, V)` of `hidden` `(B, T, D)`."""
        raise NotImplementedError

    def output_table(self):
        """Returns the tensor `(V, D)` whose product with `hidden` is the logits."""
        raise NotImplementedError

    def predict_tokens(self, hidden):
        """Returns the logits, or, in a step of `fit` or `evaluate`, `TokenLosses` where they do."""
        step = _STEP.get()
        if step is None or step.model is not self:
            return self.project(hidden)
        return self.loss.of_hidden(
            hidden,
            self.output_table(),
            step.labels,
            step.weights,
            step.training,
            jit_compile=self.jit_compile,
        )

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        loss_weights=None,
        metrics=None,
        weighted_metrics=None,
        **kwargs,
    ):
        super().compile(optimizer, loss, loss_weights, metrics, weighted_metrics, **kwargs)
        self.needs_no_logits = (
            getattr(loss, "reduction", None) == "sum"
            and getattr(loss, "of_hidden", None) is not None
            and all(hasattr(metric, "update_from_losses") for metric in metrics or ())
            and not loss_weights
            and not weighted_metrics
        )

    def compile_from_config(self, config):
        """As Keras does it where `compile` is its own."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def train_step(self, *args):  # on JAX the first argument is the state
        with self._step_on(args[-1], training=True):
            return super().train_step(*args)

    def test_step(self, *args):
        with self._step_on(args[-1], training=False):
            return super().test_step(*args)

    @contextlib.contextmanager
    def _step_on(self, data, training):
        if not self.needs_no_logits:
            yield
            return
        _, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        token = _STEP.set(_Step(self, labels, weights, training))
        try:
            yield
        finally:
            _STEP.reset(token)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if isinstance(y_pred, TokenLosses):
            return sum(self.losses, start=y_pred.loss)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if not isinstance(y_pred, TokenLosses):
            return super().compute_metrics(x, y, y_pred, sample_weight)
        for compiled in self.metrics:
            if hasattr(compiled, "metrics"):  # what Keras holds the metrics of `compile` in
                if not compiled.built:
                    compiled.build(y, y)  # one output, as the logits would be
                for metric in compiled.metrics:
                    metric.update_from_losses(y, y_pred)
        return self.get_metrics_result()
