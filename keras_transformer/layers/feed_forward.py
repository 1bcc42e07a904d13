"""Position-wise feed-forward network (Vaswani et al., 2017, eq. 2), and its activations by name.

Shapes: B batch, T length, D d_model, F ff_dim.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.layers.decoding_step import dense_weights, project_rows
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.types import Shape, Tensor


def gelu_tanh(x):
    """Returns 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), an approximation of GELU.

    It differs from GELU, x times the normal distribution function of x, by at most 5e-4 (Hendrycks
    and Gimpel, 2016, section 2, https://arxiv.org/abs/1606.08415). GPT-2 has it.
    """
    return keras.activations.gelu(x, approximate=True)


def gelu_sigmoid(x):
    """Returns x sigmoid(1.702 x), another approximation of GELU, which differs by at most 0.021.

    Source: Hendrycks and Gimpel, 2016, section 2, https://arxiv.org/abs/1606.08415. Marian has it.
    """
    return x * ops.sigmoid(1.702 * x)


NAMED = {"gelu_tanh": gelu_tanh, "gelu_sigmoid": gelu_sigmoid}
"""The activations that Keras does not know by these names."""


def activation_function(activation):
    """Returns the function of a name, of a function, or of what `activation_config` returned.

    Args:
        activation: a name in `NAMED`, or anything that `keras.activations.get` accepts.
    """
    if isinstance(activation, str) and activation in NAMED:
        return NAMED[activation]
    try:
        return keras.activations.get(activation)
    except (ValueError, TypeError):
        raise InputError(
            "Expected gelu_tanh, gelu_sigmoid or the name of one of Keras's activations, such as "
            f"relu or gelu. Received: activation={activation!r}."
        ) from None


def activation_config(function):
    """Returns what a layer's config holds for an activation: its name, where it has one."""
    names = {named: name for name, named in NAMED.items()}
    return names.get(function) or keras.activations.serialize(function)


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(TracedShape, Layer):
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
        """Returns the weights for `decode_step`: {"inner", "outer"}, each from `dense_weights`."""
        outer = dense_weights([self.outer], centered=centered)
        return {"inner": dense_weights([self.inner], norm), "outer": outer}

    def decode_step(self, x: Tensor, weights: Any) -> Tensor:
        """Returns the inner layer `(R, F)` of rows `x` `(R, D)`, the input of the outer layer."""
        return self.activation(project_rows(x, weights["inner"]))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": activation_config(self.activation)}
