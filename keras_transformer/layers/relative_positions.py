"""Positions that act within self-attention: rotary positions, and attention with linear biases.

Shapes: B batch, T query length, S key length, H heads, K head_dim.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers.positions import sinusoidal_encoding
from keras_transformer.types import Tensor


def rotate(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Rotates each pair of entries of queries or keys by an angle that grows with the position.

    (x_2i, x_2i+1) is rotated by pos / base^(2i / K) (Su et al., 2021, section 3.2.2, eq. 34,
    https://arxiv.org/abs/2104.09864). The dot product of a query and a key then depends on the
    distance between them, not on their positions.

    Args:
        x: `(..., T, H, K)`, K even.
        positions: `(T,)`, integers.
        base: the constant of the frequencies, see `sinusoidal_encoding`.
    Returns:
        A tensor of the same shape and dtype as `x`; float32 if `x` holds integers.
    Raises:
        ValueError: odd K.
    """
    x = ops.convert_to_tensor(x)
    if not keras.backend.is_float_dtype(x.dtype):
        x = ops.cast(x, "float32")
    head_dim = x.shape[-1]
    check_rotary_width(head_dim)
    encoding = sinusoidal_encoding(positions, head_dim, "concatenated", base)[:, None]  # (T, 1, K)
    encoding = ops.cast(encoding, x.dtype)
    sines, cosines = encoding[..., : head_dim // 2], encoding[..., head_dim // 2 :]
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = ops.stack([even * cosines - odd * sines, odd * cosines + even * sines], axis=-1)
    return ops.reshape(rotated, (*ops.shape(x)[:-1], head_dim))


def check_rotary_width(head_dim: int) -> None:
    """Raises `InputError` where the width of a head is odd."""
    if head_dim % 2:
        raise InputError(
            "Rotary positions rotate pairs of entries: head_dim must be even. "
            f"Received: head_dim={head_dim}."
        )


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Returns the slope of each head, `(H,)` float32: 2^(-8 h / H) for h = 1 to H.

    Source: Press et al., 2022, section 3, https://arxiv.org/abs/2108.12409. If H is not a power of
    two, the slopes are chosen as in the paper's own code: those of the next lower power of two,
    followed by every other slope of the next higher one.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[: num_heads - power], "float32")


def alibi_bias(distances: Tensor, num_heads: int) -> Tensor:
    """Returns -slope |distance|, a bias that lowers the scores of distant keys.

    The paper's attention is causal. Here the encoder uses the bias too, in both directions.

    Args:
        distances: `(T, S)`, query position minus key position.
        num_heads: H.
    Returns:
        `(H, T, S)` float32.
    """
    slopes = ops.convert_to_tensor(alibi_slopes(num_heads))[:, None, None]
    return -slopes * ops.abs(ops.cast(distances, "float32"))
