"""Positions: added to embeddings or appended to them, or within self-attention.

Shapes: B batch, T length or query length, S key length, D d_model, P width of an encoding that is
concatenated, H heads, K head_dim.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer, NotQuantized, TracedShape
from keras_transformer.types import Shape, Tensor

COMBINATIONS = ("add", "concatenate")
LAYOUTS = ("interleaved", "concatenated")


def sinusoidal_encoding(
    positions: Tensor, d_model: int, layout: str = "interleaved", base: float = 10000.0
) -> Tensor:
    """Returns the encoding of `positions`.

    The angle of pair i at position pos is pos / base^(2i / D). The two layouts hold the same
    numbers in another order:

    - "interleaved", the paper's formula: PE(pos, 2i) = sin(angle), PE(pos, 2i + 1) = cos(angle);
    - "concatenated": PE(pos, i) = sin(angle), PE(pos, D/2 + i) = cos(angle).

    The paper does not mention an odd D. Here its last pair has a sine and no cosine.

    Args:
        positions: `(T,)`, integers or floats, counted from 0.
        d_model: D.
        layout: "interleaved" or "concatenated".
        base: the constant of the formula; the wavelengths range from 2 pi to nearly base * 2 pi.
    Returns:
        `(T, D)` float32.
    Raises:
        ValueError: unknown layout, or base not above 0.
    """
    _check(layout, base)
    pairs = ops.arange(-(-d_model // 2), dtype="float32")
    frequencies = ops.exp(pairs * (-2.0 / d_model) * ops.log(ops.cast(base, "float32")))
    angles = ops.cast(positions, "float32")[:, None] * frequencies[None, :]  # (T, pairs)
    sines, cosines = ops.sin(angles), ops.cos(angles)
    if layout == "concatenated":
        return ops.concatenate([sines, cosines[:, : d_model // 2]], axis=-1)
    interleaved = ops.stack([sines, cosines], axis=-1)  # (T, pairs, 2)
    return ops.reshape(interleaved, (-1, 2 * pairs.shape[0]))[:, :d_model]


def _check(layout, base):
    if layout not in LAYOUTS:
        raise InputError(f"layout must be one of {LAYOUTS}. Received: layout={layout!r}.")
    if base <= 0:
        raise InputError(f"base must be above 0. Received: base={base}.")


class _Positions(TracedShape, Layer):
    """Adds to its input what the subclass's `encode` returns for each position, or appends it."""

    def __init__(self, combine: str = "add", width: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if combine not in COMBINATIONS:
            raise InputError(
                f"combine must be one of {COMBINATIONS}. Received: combine={combine!r}."
            )
        if width is not None and (combine == "add" or width < 1):
            raise InputError(
                "width must be at least 1, and is only for combine='concatenate': an encoding that "
                "is added is as wide as the input. "
                f"Received: combine={combine!r}, width={width}."
            )
        self.combine = combine
        self.width = width

    def build(self, input_shape: Shape) -> None:
        self.encoding_width = self.width or input_shape[-1]

    def encode(self, positions: Tensor) -> Tensor:
        """Returns `(T, D)` or `(T, P)`, the encoding of `positions` `(T,)`."""
        raise NotImplementedError

    def call(self, x: Tensor) -> Tensor:
        if len(x.shape) != 3:
            raise InputError(f"x must have shape (B, T, D). Received: x.shape={tuple(x.shape)}.")
        encoding = self.encode(ops.arange(ops.shape(x)[1]))
        if self.combine == "add":
            return x + encoding
        shape = (ops.shape(x)[0], *ops.shape(encoding))
        return ops.concatenate([x, ops.broadcast_to(encoding, shape)], axis=-1)


@keras.saving.register_keras_serializable("keras_transformer")
class SinusoidalPositions(_Positions):
    """Adds the sinusoidal encoding of each position. It has no weights and takes any length.

    Source: https://arxiv.org/abs/1706.03762, section 3.5. See `sinusoidal_encoding`.

    Args:
        layout: "interleaved" (the paper's formula) or "concatenated" (sines, then cosines).
        base: the constant of the formula, 10000 in the paper.
        combine: "add", or "concatenate" to append the encoding to the input.
        width: P, width of an encoding that is concatenated; None: D.

    Call arguments:
        x: `(B, T, D)`.

    Returns:
        `(B, T, D)`, or `(B, T, D + P)` with "concatenate".

    Raises:
        ValueError: another rank, unknown layout or combination, or base not above 0.

    Example:
    >>> SinusoidalPositions()(np.zeros((1, 5, 8))).shape
    (1, 5, 8)
    """

    def __init__(
        self,
        layout: str = "interleaved",
        base: float = 10000.0,
        combine: str = "add",
        width: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(combine, width, **kwargs)
        _check(layout, base)
        self.layout = layout
        self.base = base

    def encode(self, positions: Tensor) -> Tensor:
        encoding = sinusoidal_encoding(positions, self.encoding_width, self.layout, self.base)
        return ops.cast(encoding, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(NotQuantized, _Positions):
    """Adds a learned vector for each position.

    Source: Gehring et al., 2017, https://arxiv.org/abs/1705.03122.
    Vaswani et al. (2017, section 3.5) compared them with sinusoids and "found that the two versions
    produced nearly identical results". They end at `max_length`; sinusoids have no end.

    Args:
        max_length: number of positions in the table.
        combine: "add", or "concatenate" to append the vector to the input.
        width: P, width of a vector that is concatenated; None: D.

    Call arguments:
        x: `(B, T, D)`, T at most `max_length`.

    Returns:
        `(B, T, D)`, or `(B, T, D + P)` with "concatenate".

    Raises:
        ValueError: another rank, max_length below 1, an unknown combination, or a static T above
            max_length. If T is known only when the graph runs, positions beyond the table get its
            last row.

    Example:
    >>> LearnedPositions(max_length=64)(np.zeros((1, 5, 8))).shape
    (1, 5, 8)
    """

    def __init__(
        self, max_length: int, combine: str = "add", width: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(combine, width, **kwargs)
        check_positive_integers(max_length=max_length)
        self.max_length = max_length

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, self.encoding_width),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        # on PyTorch, Keras infers shapes from tensors of this device, with 83 for unknown lengths
        is_real = getattr(getattr(x, "device", None), "type", None) != "meta"
        if is_real and isinstance(length, int) and length > self.max_length:
            raise InputError(
                f"x must be at most max_length={self.max_length} positions long. "
                f"Received: x.shape={tuple(x.shape)}. "
                "Raise max_length, shorten the input or use sinusoidal positions."
            )
        return super().call(x)

    def encode(self, positions: Tensor) -> Tensor:
        rows = ops.minimum(positions, self.max_length - 1)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), rows, axis=0)


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
