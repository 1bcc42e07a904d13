"""The loss of translation: label-smoothed cross-entropy of the tokens, R-Drop, guided alignment.

Shapes: B batch, T target length, S source length, D width, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError
from keras_transformer.types import Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class TokenCrossEntropy(keras.losses.Loss):
    """Weighted sum of the cross-entropy of the target tokens against smoothed labels, in nats.

    The sample weights of `data.TranslationBatches` are 1 / (number of real tokens in the batch) for
    each real token, and 0 for padding. The sum is then the mean loss per token (Vaswani et al.,
    2017, section 5.4, label smoothing 0.1, https://arxiv.org/abs/1706.03762). It stays exact when a
    batch is divided among replicas with unequal numbers of tokens.

    With `r_drop`, a `TokenModel` predicts each batch twice in training, with different dropout.
    The loss is the mean of both cross-entropies and half of `r_drop` times the mean of the two
    divergences KL(p || q) and KL(q || p) between the predictions p and q of each token. This is
    half of the loss of R-Drop (Liang et al., 2021, eq. 4, https://arxiv.org/abs/2106.14448), whose
    alpha is `r_drop`. A step takes about twice the time and memory.

    Where a batch has alignments, `alignment_weight` times their weighted cross-entropy is added
    (Garg et al., 2019, section 4.2, https://arxiv.org/abs/1909.02074). Unlike there, the head that
    aligns a token does not see it, nor the tokens after it: an alignment costs no second pass.

    Args:
        label_smoothing: probability that is spread evenly over the vocabulary, in `[0, 1)`.
        r_drop: factor of the divergence; 0: each batch is predicted once.
        alignment_weight: lambda, the factor of the cross-entropy of alignments.

    Call arguments:
        y_true: `(B, T)` integer labels.
        y_pred: `(B, T, V)` logits.
        sample_weight: `(B, T)`.

    Raises:
        InputError: label_smoothing is not in `[0, 1)`, or r_drop or alignment_weight is below 0 or
            not finite.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        r_drop: float = 0.0,
        alignment_weight: float = 0.05,
        name: str = "token_cross_entropy",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("reduction", "sum")
        super().__init__(name=name, **kwargs)
        if not 0.0 <= label_smoothing < 1.0:
            raise InputError(
                f"label_smoothing must be in [0, 1). Received: label_smoothing={label_smoothing}."
            )
        for option, value in (("r_drop", r_drop), ("alignment_weight", alignment_weight)):
            if not (isinstance(value, int | float) and 0.0 <= value < float("inf")):
                raise InputError(
                    f"{option} must be a number from 0 up. Received: {option}={value!r}."
                )
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self.alignment_weight = alignment_weight

    @property
    def num_predictions(self) -> int:
        """How often the model predicts each batch in training."""
        return 2 if self.r_drop else 1

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels = _labels_of(y_true, y_pred)
        return backend.token_cross_entropy(y_pred, labels, self.label_smoothing)

    def from_hidden(
        self,
        hidden: Tensor,
        table: Tensor,
        labels: Tensor,
        sample_weight: Tensor | None = None,
        training: bool = False,
        jit_compile: bool = False,
        alignment: tuple[Tensor, Tensor] | None = None,
    ) -> Any:
        """Returns the loss of the logits `hidden · table^T` without an array of all logits.

        Args:
            hidden: `(B, T, D)`. In training with `r_drop`, rows i and i + B / 2 belong to the same
                sentence.
            table: `(V, D)`.
            labels, sample_weight: as `y_true` and `sample_weight` of the call.
            training: whether a gradient will be computed.
            jit_compile: whether XLA compiles the caller.
            alignment: pair of float32 `(B, T, S)`: to which source tokens each token is aligned, in
                rows that sum to 1, or to 0 for a token that is not; and the logarithms of the
                attention weights that are trained to be equal to it. None: without any.
        Returns:
            `backend.TokenLosses` of the B * T tokens.
        """
        labels = _labels_of(labels, hidden)
        weights = ops.ones_like(labels, dtype="float32")
        if sample_weight is not None:
            weights = weights * ops.cast(sample_weight, "float32")
        aligned = None
        if alignment is not None:
            expected, log_weights = (ops.cast(x, "float32") for x in alignment)
            cross_entropy = -ops.sum(expected * log_weights, axis=-1)
            aligned = self.alignment_weight * ops.sum(weights * cross_entropy)
        hidden = ops.reshape(hidden, (-1, hidden.shape[-1]))
        labels, weights = ops.reshape(labels, (-1,)), ops.reshape(weights, (-1,))
        in_pairs = bool(self.r_drop) and training
        if in_pairs:  # the backend wants both predictions of a token one after the other
            hidden, labels, weights = map(_pairs_together, (hidden, labels, weights))
        losses = backend.projected_cross_entropy(
            hidden,
            table,
            labels,
            weights,
            self.label_smoothing,
            training,
            jit_compile,
            self.r_drop if in_pairs else 0.0,
        )
        if aligned is not None:
            losses = losses._replace(loss=losses.loss + aligned)
        if not in_pairs:
            return losses
        return losses._replace(
            cross_entropy=_pairs_apart(losses.cross_entropy), correct=_pairs_apart(losses.correct)
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "r_drop": self.r_drop,
            "alignment_weight": self.alignment_weight,
        }


def _pairs_together(values):
    """Returns rows 0, N / 2, 1, N / 2 + 1 and so on of N rows."""
    halves = ops.stack(ops.split(values, 2, axis=0), axis=1)
    return ops.reshape(halves, (-1, *values.shape[1:]))


def _pairs_apart(values):
    """Undoes `_pairs_together` of `(N,)`."""
    return ops.reshape(ops.transpose(ops.reshape(values, (-1, 2))), (-1,))


def _labels_of(labels, outputs):
    """Returns the labels as int32, in the shape of the outputs without their last axis."""
    shape = outputs.shape[:-1]
    if labels is None:
        raise InputError(
            f"Expected labels of the shape {tuple(shape)}, one for each prediction. Received: none."
        )
    given = labels.shape
    if len(given) == len(shape) + 1 and given[-1] == 1:  # as Keras's losses allow
        given = given[:-1]
    if len(given) != len(shape) or any(
        size != expected and None not in (size, expected)
        for size, expected in zip(given, shape, strict=True)
    ):
        raise InputError(
            f"Expected labels of the shape {tuple(shape)}, one for each prediction. Received: "
            f"labels.shape={tuple(labels.shape)}. Of ids, inputs are ids[:, :-1] and labels are "
            "ids[:, 1:]."
        )
    return ops.reshape(ops.cast(labels, "int32"), ops.shape(outputs)[:-1])
