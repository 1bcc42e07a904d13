"""Position-wise feed-forward network (Vaswani et al., 2017, eq. 2).

Shapes: B batch, T length, D d_model, F ff_dim.
"""

from typing import Any

import keras

from keras_transformer.layers.activations import activation_config, activation_function
from keras_transformer.layers.decoding_weights import dense_weights, project_rows
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.keeps_frozen import KeepsFrozen
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.layers.positive_integers import check_positive_integers
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(KeepsFrozen, keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, applied to each position separately.

    Source: https://arxiv.org/abs/1706.03762, eq. 2.

    Args:
        ff_dim: F, width of the inner layer.
        activation: activation of the inner layer; "relu" in the paper. It is the name of one of
            Keras's activations, or "gelu_tanh" or "gelu_sigmoid", the approximations of GELU in
            GPT-2 and in Marian.
        dropout: rate on the output of the inner layer; the paper has none. It is fairseq's
            activation-dropout and the relu_dropout of Tensor2Tensor.

    Call arguments:
        x: `(B, T, D)`.
        training: whether dropout is applied.

    Returns:
        `(B, T, D)`.

    Example:
    >>> FeedForward(ff_dim=32)(np.zeros((1, 5, 8))).shape
    (1, 5, 8)
    """

    def __init__(
        self, ff_dim: int, activation: str = "relu", dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        check_positive_integers(ff_dim=ff_dim)
        self.ff_dim = ff_dim
        self.activation = activation_function(activation)
        self.dropout = dropout
        self.inner_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        policy = self.dtype_policy
        self.inner = Dense(self.ff_dim, self.activation, dtype=policy, name="inner")
        self.outer = Dense(input_shape[-1], dtype=policy, name="outer")
        self.inner.build(input_shape)
        self.outer.build((*input_shape[:-1], self.ff_dim))

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        return self.outer(self.inner_dropout(self.inner(x), training=training))

    def decoding_weights(
        self, norm: LayerNormalization | None = None, centered: bool = False
    ) -> Any:
        """Returns the weights for `decode_step`: {"inner", "outer"}, each from `dense_weights`.

        Args:
            norm: the normalization of the input; None: there is none.
            centered: whether the mean of the output over D becomes 0.
        """
        outer = dense_weights([self.outer], centered=centered)
        return {"inner": dense_weights([self.inner], norm), "outer": outer}

    def decode_step(self, x: Tensor, weights: Any) -> Tensor:
        """Returns the inner layer `(R, F)` of rows `x` `(R, D)`, the input of the outer layer.

        Args:
            weights: from `decoding_weights`.
        """
        return self.activation(project_rows(x, weights["inner"]))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        activation = activation_config(self.activation)
        return {
            **super().get_config(),
            "ff_dim": self.ff_dim,
            "activation": activation,
            "dropout": self.dropout,
        }
