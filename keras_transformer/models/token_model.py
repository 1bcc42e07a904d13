"""Models that predict tokens of a vocabulary, trained without an array of all logits.

Shapes: B batch, T length, D d_model, V vocabulary.
"""

import contextlib
import contextvars
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.backend import TokenLosses
from keras_transformer.errors import InputError
from keras_transformer.models.base import BaseModel
from keras_transformer.types import Tensor


class _Step(NamedTuple):
    """The current step of `fit` or `evaluate`: the labels and weights of its batch."""

    model: keras.Model
    labels: object
    weights: object
    training: bool


_STEP = contextvars.ContextVar("step", default=None)  # each replica's thread has its own


class TokenModel(BaseModel):
    """A model whose `call` returns logits, and which trains without an array of all logits.

    The output layer, the softmax and the loss are half the work of a small model, most of it
    passes over the logits. A model never has all logits in memory if it is compiled with a loss
    that works from the hidden states (`TokenCrossEntropy`) and with metrics that need only the
    results of that loss (`TokenAccuracy`, `Perplexity`). Any other loss or metric gets the logits.

    A subclass ends its `call` with `self.predict_tokens(hidden)`. It has the methods `project`,
    from `hidden` `(B, T, D)` to logits `(B, T, V)`, and `output_table`, which returns the tensor
    `(V, D)` whose product with `hidden` is the logits.

    Attributes:
        needs_no_logits: whether the model was compiled with such a loss and such metrics.
    """

    def output_factors(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Returns hidden states `(B, T, D)` and a table `(V, D)` whose product is the logits.

        Where the logits are more than a product, D may be larger than that of `hidden`.
        """
        return hidden, self.output_table()

    def predict_tokens(self, hidden: Tensor, alignment: tuple[Tensor, Tensor] | None = None) -> Any:
        """Returns logits, or `TokenLosses` in a step of `fit` or `evaluate` that needs none.

        Args:
            alignment: see `TokenCrossEntropy.from_hidden`.
        """
        step = _STEP.get()
        if step is None or step.model is not self:
            if alignment is not None:
                raise InputError(
                    "Expected a step of fit where the inputs have an alignment, with the loss "
                    "TokenCrossEntropy and among the metrics only TokenAccuracy and Perplexity. "
                    "Received: another call, loss or metric. Leave the alignment out."
                )
            return self.project(hidden)
        return self.loss.from_hidden(
            *self.output_factors(hidden),
            step.labels,
            step.weights,
            step.training,
            jit_compile=self.jit_compile,
            **({} if alignment is None else {"alignment": alignment}),
        )

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        super().compile(optimizer, loss, loss_weights, metrics, weighted_metrics, **kwargs)
        self.needs_no_logits = (
            getattr(loss, "reduction", None) == "sum"
            and getattr(loss, "from_hidden", None) is not None
            and all(hasattr(metric, "update_from_losses") for metric in metrics or ())
            and not loss_weights
            and not weighted_metrics
        )

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Does what Keras does for models that do not override `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def train_step(self, *args: Any) -> Any:  # on JAX the first argument is the state
        *state, data = args
        data = self.repeated(data)
        with self._step_on(data, training=True):
            return super().train_step(*state, data)

    def test_step(self, *args: Any) -> Any:
        with self._step_on(args[-1], training=False):
            return super().test_step(*args)

    def repeated(self, data: Any) -> Any:
        """Returns a batch as often as the loss wants it predicted, with weights divided by that."""
        num_predictions = getattr(self.loss, "num_predictions", 1)
        if num_predictions == 1:
            return data
        if not self.needs_no_logits:
            raise InputError(
                "Expected a loss with reduction='sum', no loss_weights, no weighted_metrics, and "
                "among the metrics only TokenAccuracy and Perplexity, where the loss compares two "
                f"predictions. Received: r_drop={self.loss.r_drop}. Compile the model with these."
            )
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        weights = ops.ones_like(labels, dtype="float32") if weights is None else weights
        return keras.tree.map_structure(
            lambda values: ops.concatenate([values] * num_predictions, axis=0),
            (inputs, labels, ops.cast(weights, "float32") / num_predictions),
        )

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

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Any:
        if isinstance(y_pred, TokenLosses):
            return sum(self.losses, start=y_pred.loss)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Any:
        if not isinstance(y_pred, TokenLosses):
            return super().compute_metrics(x, y, y_pred, sample_weight)
        for compiled in self.metrics:
            if hasattr(compiled, "metrics"):  # Keras's container of the metrics of `compile`
                if not compiled.built:
                    compiled.build(y, y)  # labels in place of logits: only the structure counts
                for metric in compiled.metrics:
                    metric.update_from_losses(y, y_pred)
        return self.get_metrics_result()
