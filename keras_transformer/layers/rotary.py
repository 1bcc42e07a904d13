"""Rotary position embedding (Su et al., 2021, https://arxiv.org/abs/2104.09864).

Shapes: B batch, T length, H heads, K head_dim.
"""

import keras
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers.sinusoidal_positions import sinusoidal_encoding
from keras_transformer.types import Tensor


def rotate(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Rotates each pair of entries of queries or keys by an angle that grows with the position.

    (x_2i, x_2i+1) is rotated by pos / base^(2i / K) (section 3.2.2, eq. 34). The dot product of a
    query and a key then depends on the distance between them, not on their positions.

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
    if head_dim % 2:
        raise InputError(
            "Rotary positions rotate pairs of entries: head_dim must be even. "
            f"Received: head_dim={head_dim}."
        )
    encoding = sinusoidal_encoding(positions, head_dim, "concatenated", base)[:, None]  # (T, 1, K)
    encoding = ops.cast(encoding, x.dtype)
    sines, cosines = encoding[..., : head_dim // 2], encoding[..., head_dim // 2 :]
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = ops.stack([even * cosines - odd * sines, odd * cosines + even * sines], axis=-1)
    return ops.reshape(rotated, (*ops.shape(x)[:-1], head_dim))
