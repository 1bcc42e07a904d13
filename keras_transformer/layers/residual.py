"""The residual connection around a sublayer (He et al., 2015, https://arxiv.org/abs/1512.03385).

Shapes: B batch, T length, D d_model.
"""

from typing import Any

import keras

from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.layers.decoding_step import add_projection, minus_mean, standardized
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class Residual(TracedShape, Layer):
    """Residual connection, dropout and layer normalization around any sublayer.

    Post-norm, as in the paper: LayerNorm(x + Dropout(Sublayer(x))) (Vaswani et al., 2017, section
    3.1, https://arxiv.org/abs/1706.03762). Pre-norm: x + Dropout(Sublayer(LayerNorm(x))), which
    trains without a careful warm-up and needs one more LayerNorm after the last block (Xiong et
    al., 2020, https://arxiv.org/abs/2002.04745).

    The caller calls the sublayer between the two halves, with any arguments that it needs:

    >>> residual = Residual(dropout=0.1, normalize_first=True)
    >>> dense = keras.layers.Dense(8)
    >>> x = np.zeros((1, 5, 8))
    >>> residual(x, dense(residual.normalize_input(x))).shape
    (1, 5, 8)

    Args:
        dropout: rate on the sublayer's output, before it is added.
        normalize_first: True for pre-norm, False for post-norm.
        layer_norm_epsilon: see `LayerNormalization`.

    Call arguments:
        x: `(B, T, D)`, the input of the residual connection.
        sublayer_output: `(B, T, D)`; None: only the first half, see `normalize_input`.
        training: whether dropout is applied.

    Returns:
        `(B, T, D)`.
    """

    def __init__(
        self,
        dropout: float = 0.1,
        normalize_first: bool = False,
        layer_norm_epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.normalization = LayerNormalization(
            layer_norm_epsilon, dtype=self.dtype_policy, name="normalization"
        )
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape: Shape, sublayer_output_shape: Shape | None = None) -> None:
        self.normalization.build(x_shape)

    def normalize_input(self, x: Tensor) -> Tensor:
        """Returns the input of the sublayer: x, normalized with pre-norm."""
        return self(x)  # a call, so that functional models record the normalization

    def call(
        self, x: Tensor, sublayer_output: Tensor | None = None, training: bool = False
    ) -> Tensor:
        if sublayer_output is None:
            return self.normalization(x) if self.normalize_first else x
        x = x + self.output_dropout(sublayer_output, training=training)
        return x if self.normalize_first else self.normalization(x)

    # === Step by step, without dropout ===

    def decoding_norm(self) -> LayerNormalization | None:
        """Returns the normalization of the sublayer's input, for `dense_weights`."""
        return self.normalization if self.normalize_first else None

    def decoding_input(self, x: Tensor) -> Tensor:
        """Returns the sublayer's input `(R, D)`, without what `dense_weights` adds to it.

        Args:
            x: `(R, D)`; with pre-norm, the mean of each row is 0.
        """
        return standardized(x, self.layer_norm_epsilon) if self.normalize_first else x

    def decode_step(self, x: Tensor, inner: Tensor, weights: Any) -> Tensor:
        """Adds the sublayer's output to `x`, and normalizes the sum with post-norm.

        Args:
            x: `(R, D)`.
            inner: `(R, F)`, the input of the sublayer's last projection.
            weights: of this projection, from `dense_weights`; with pre-norm, centered. {}: there is
                none, and inner `(R, D)` is the sublayer's output.
        """
        if weights:
            x = add_projection(x, inner, weights)
        else:
            x = x + (minus_mean(inner) if self.normalize_first else inner)
        return x if self.normalize_first else self.normalization(x)
