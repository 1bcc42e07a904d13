"""Dense layers: one that is fast on few rows, as in decoding, and one that projects head by head.

Shapes: R rows, B batch, T length, D width of the input, F units, H heads, K head_dim.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer, NotQuantized, TracedShape
from keras_transformer.layers.lora import merged_kernel
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class Dense(NotQuantized, keras.layers.Dense):
    """Keras's Dense, activation(x W + b), in two thirds of the time for few rows `(R, D)`.

    Call arguments:
        x: `(..., D)`.

    Returns:
        `(..., F)`.

    Example:
    >>> Dense(3)(np.zeros((5, 8))).shape
    (5, 3)
    """

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        y = self.multiply(x)
        if self.bias is not None:
            y = backend.add_bias(y, self.bias) if len(x.shape) == 2 else ops.add(y, self.bias)
        return y if self.activation is None else self.activation(y)

    def multiply(self, x: Tensor) -> Tensor:
        """Returns x W; an export sets a function that does it in int8 instead."""
        return ops.matmul(x, self.kernel)

    def save_own_variables(self, store: Any) -> None:
        if not self.lora_enabled:
            super().save_own_variables(store)
            return
        found: dict[str, Any] = {}
        super().save_own_variables(found)
        # Keras rounds the merged kernel to the compute dtype
        for name, value in {**found, "0": merged_kernel(self)}.items():
            store[name] = value

    def load_own_variables(self, store: Any) -> None:
        factor = np.array(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if factor is not None:  # Keras makes both factors zero, from where neither would learn
            self.lora_kernel_a.assign(factor)


@keras.saving.register_keras_serializable("keras_transformer")
class HeadwiseDense(NotQuantized, TracedShape, Layer):
    """head_h(x) = x[h D / H : (h + 1) D / H] W_h + b_h, with H times fewer weights than `Dense`.

    A variant of multi-head attention splits the input into slices and projects one for each head.
    The paper differs: each head projects the whole input (Vaswani et al., 2017, section 3.2.2).

    Args:
        num_heads: H, which must divide D.
        head_dim: K.
        use_bias: whether to add a bias b_h.

    Call arguments:
        x: `(..., D)`.

    Returns:
        `(..., H * K)`.

    Raises:
        ValueError: sizes below 1, or H does not divide D.

    Example:
    >>> HeadwiseDense(num_heads=2, head_dim=3)(np.zeros((1, 5, 8))).shape
    (1, 5, 6)
    """

    def __init__(self, num_heads: int, head_dim: int, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integers(num_heads=num_heads, head_dim=head_dim)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.use_bias = use_bias

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if width % self.num_heads:
            raise InputError(
                "The width of the input must be divisible by num_heads. "
                f"Received: width {width}, num_heads={self.num_heads}. "
                "Change one of them, or let each head see the whole input."
            )
        self.kernels = self.add_weight(
            name="kernels",
            shape=(self.num_heads, width // self.num_heads, self.head_dim),
            initializer=_glorot_of_each_head,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.num_heads * self.head_dim,), initializer="zeros"
            )

    @property
    def kernel(self) -> Tensor:
        """`(D, H * K)`, the equivalent kernel of a `Dense`, block-diagonal."""
        apart = ops.eye(self.num_heads, dtype=self.kernels.dtype)[:, None, :, None]
        whole = apart * ops.expand_dims(self.kernels, 2)  # (H, D / H, H, K)
        return ops.reshape(whole, (-1, self.num_heads * self.head_dim))

    def call(self, x: Tensor) -> Tensor:
        shape = ops.shape(x)[:-1]
        slices = ops.reshape(x, (-1, self.num_heads, x.shape[-1] // self.num_heads))
        y = ops.einsum("rhd,hdk->rhk", slices, self.kernels)
        y = ops.reshape(y, (*shape, self.num_heads * self.head_dim))
        return y if self.bias is None else y + self.bias


def _glorot_of_each_head(shape, dtype=None):
    """Glorot-uniform for each head; Keras's would take H for the window size of a convolution."""
    limit = (6 / (shape[1] + shape[2])) ** 0.5
    return keras.random.uniform(shape, -limit, limit, dtype=dtype)
