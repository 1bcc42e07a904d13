"""Rotary position embedding (Su et al., 2021, https://arxiv.org/abs/2104.09864).

Shapes: B batch, T length, H heads, K head_dim.
"""

import keras
from keras import ops

from keras_transformer.layers.sinusoidal_positions import sinusoidal_encoding


def rotate(x, positions, base=10000.0):
    """Turns each pair of entries of queries or keys by an angle that grows with the position.

    (x_2i, x_2i+1) is turned by pos / base^(2i / K) (section 3.2.2, eq. 34): the dot product of a
    query and a key then depends on how far they are apart, not on where they stand.

    Args:
        x: `(..., T, H, K)`, K even.
        positions: `(T,)`, integers.
        base: the constant of the frequencies, as of the sinusoids.
    Returns:
        As `x`.
    Raises:
        ValueError: odd K.
    """
    x = ops.convert_to_tensor(x)
    if not keras.backend.is_float_dtype(x.dtype):
        x = ops.cast(x, "float32")
    head_dim = x.shape[-1]
    if head_dim % 2:
        raise ValueError(
            "Rotary positions turn pairs of entries: head_dim must be even. "
            f"Received: head_dim={head_dim}."
        )
    encoding = sinusoidal_encoding(positions, head_dim, "concatenated", base)[:, None]  # (T, 1, K)
    encoding = ops.cast(encoding, x.dtype)
    sines, cosines = encoding[..., : head_dim // 2], encoding[..., head_dim // 2 :]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = ops.stack([even * cosines - odd * sines, odd * cosines + even * sines], axis=-1)
    return ops.reshape(turned, (*ops.shape(x)[:-1], head_dim))
