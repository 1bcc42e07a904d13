"""What the steps of decoding read: the state of a model, and the weights of its dense layers.

A step has few rows, so that each of its operations costs more than its arithmetic. What does not
depend on the rows is therefore computed once, before the first step.

Shapes: B batch, N hypotheses of each input, R rows, H heads, D width of the input, F width of the
output.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.types import Tensor


class DecodingState(NamedTuple):
    """Nested lists and dicts of tensors, named by the layers that read them, between two steps."""

    cache: Any
    """Tensors `(B * N, H, time or 1, ...)`, one row for each hypothesis, which each step updates:
    the keys and values of self-attention, for example. Row b * N + n is hypothesis n of input b.
    Tensors `(B * N, ...)` of rank 1 or 2 have no time, such as the states of recurrent layers."""

    memory: Any
    """Tensors `(B, ...)`, one row for each input, which no step changes: the keys and values of the
    source, for example."""


def dense_weights(
    layers: Sequence[keras.layers.Layer],
    norm: LayerNormalization | None = None,
    centered: bool = False,
) -> dict[str, Tensor]:
    """Returns the weights of dense layers that read the same input, side by side.

    Args:
        layers: layers with a `kernel` `(D, F_i)` and a `bias` `(F_i,)` or None.
        norm: a normalization before the layers, whose gamma and beta become part of the weights;
            only `standardized` is left of it. None: there is none.
        centered: whether the mean of the output over F becomes 0.
    Returns:
        {"kernel": `(D, F)`} and, if there is a bias, "bias": `(F,)`, in the layers' compute dtype.
    """
    dtype = layers[0].compute_dtype
    kernel = ops.concatenate([ops.cast(layer.kernel, "float32") for layer in layers], axis=1)
    bias = None
    if any(layer.bias is not None for layer in layers):
        bias = ops.concatenate([_bias(layer) for layer in layers], axis=0)
    if norm is not None:
        beta = ops.matmul(ops.cast(norm.beta, "float32")[None], kernel)[0]
        bias = beta if bias is None else beta + bias
        kernel = ops.cast(norm.gamma, "float32")[:, None] * kernel
    if centered:
        kernel = kernel - ops.mean(kernel, axis=1, keepdims=True)
        bias = None if bias is None else bias - ops.mean(bias)
    weights = {"kernel": kernel} if bias is None else {"kernel": kernel, "bias": bias}
    return {name: ops.cast(weight, dtype) for name, weight in weights.items()}


def _bias(layer):
    if layer.bias is None:
        return ops.zeros(layer.kernel.shape[1:], "float32")
    return ops.cast(layer.bias, "float32")


def product(x: Tensor, kernel: Any) -> Tensor:
    """Returns `(R, F)`, the product of `x` `(R, D)` and a kernel `(D, F)`.

    Args:
        kernel: a tensor, or an object with a method `multiply_rows`, which no tensor has, such as
            the `Int8Kernel` of an export.
    """
    return kernel.multiply_rows(x) if hasattr(kernel, "multiply_rows") else ops.matmul(x, kernel)


def project_rows(x: Tensor, weights: Any) -> Tensor:
    """Returns `(R, F)`, the output of the dense layers for `x` `(R, D)`.

    Args:
        weights: from `dense_weights`.
    """
    y = product(x, weights["kernel"])
    return backend.add_bias(y, weights["bias"]) if "bias" in weights else y


def add_projection(x: Tensor, inner: Tensor, weights: Any) -> Tensor:
    """Returns `x` `(R, F)` plus the output `(R, F)` of the dense layers for `inner` `(R, D)`."""
    y = x + product(inner, weights["kernel"])
    return y + weights["bias"] if "bias" in weights else y


def minus_mean(x: Tensor) -> Tensor:
    """Returns the rows of `x` `(R, D)`, each minus its mean."""
    return x - ops.mean(x, axis=-1, keepdims=True)


def standardized(x: Tensor, epsilon: float) -> Tensor:
    """Returns the rows of `x` `(R, D)`, whose means are 0, divided by their standard deviations."""
    precise = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    variance = ops.mean(ops.square(precise), axis=-1, keepdims=True)
    return ops.cast(precise * ops.rsqrt(variance + epsilon), x.dtype)
