"""Means over all real target tokens: padding (label 0) is ignored, and every token has the same
weight, whichever batch it is in.

Shapes: B batch, T target length, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.layers.masks import padding_mask
from keras_transformer.types import Tensor


class _TokenMean(keras.metrics.Metric):
    """Mean of a value over all real tokens since the last reset.

    Sample weights are ignored, because they may hold the division of the loss by the number of
    tokens.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")
        self.num_tokens = self.add_variable(shape=(), initializer="zeros", name="num_tokens")

    def values(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Returns the value of each token, `(B, T)`."""
        raise NotImplementedError

    def values_in(self, losses: Any) -> Tensor:
        """Returns the value of each token in `backend.TokenLosses`, `(B * T,)`."""
        raise NotImplementedError

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        labels = ops.cast(y_true, "int32")
        self._add(labels, self.values(labels, y_pred))

    def update_from_losses(self, y_true: Tensor, losses: Any) -> None:
        """Does what `update_state` does, with `backend.TokenLosses` instead of logits."""
        self._add(ops.reshape(y_true, (-1,)), self.values_in(losses))

    def _add(self, labels, values):
        real = ops.cast(padding_mask(labels), "float32")
        self.total.assign_add(ops.sum(values * real))
        self.num_tokens.assign_add(ops.sum(real))

    def result(self) -> Tensor:
        return ops.divide_no_nan(self.total, self.num_tokens)


@keras.saving.register_keras_serializable("keras_transformer")
class TokenAccuracy(_TokenMean):
    """Fraction of the target tokens that have the highest logit.

    Call arguments:
        y_true: `(B, T)` integer labels, 0 = padding.
        y_pred: `(B, T, V)` logits.
    """

    def __init__(self, name: str = "accuracy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def values(self, labels: Tensor, logits: Tensor) -> Tensor:
        # not `logit == maximum`: bfloat16 logits are often equal, and only one token is chosen
        return ops.cast(
            ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), labels), "float32"
        )

    def values_in(self, losses: Any) -> Tensor:
        return losses.correct


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """exp of the mean cross-entropy (nats, no label smoothing) of the target tokens.

    Call arguments:
        y_true: `(B, T)` integer labels, 0 = padding.
        y_pred: `(B, T, V)` logits.
    """

    def __init__(self, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def values(self, labels: Tensor, logits: Tensor) -> Tensor:
        return backend.token_cross_entropy(logits, labels)

    def values_in(self, losses: Any) -> Tensor:
        return losses.cross_entropy

    def result(self) -> Tensor:
        return ops.exp(super().result())
