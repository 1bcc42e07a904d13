"""Sinusoidal position encoding (Vaswani et al., 2017, section 3.5).

Shapes: B batch, T length, D d_model, P width of an encoding that is concatenated.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers.combine import check_combination, combined, combined_shape
from keras_transformer.types import Shape, Tensor

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


@keras.saving.register_keras_serializable("keras_transformer")
class SinusoidalPositions(keras.layers.Layer):
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
        super().__init__(**kwargs)
        self.supports_masking = True
        _check(layout, base)
        check_combination(combine, width)
        self.layout = layout
        self.base = base
        self.combine = combine
        self.width = width

    def build(self, input_shape: Shape) -> None:
        self.encoding_width = self.width or input_shape[-1]

    def call(self, x: Tensor) -> Tensor:
        return combined(x, self.encode(ops.arange(ops.shape(x)[1])), self.combine)

    def encode(self, positions: Tensor) -> Tensor:
        """Returns `(T, D)` or `(T, P)`, the encoding of `positions` `(T,)`."""
        encoding = sinusoidal_encoding(positions, self.encoding_width, self.layout, self.base)
        return ops.cast(encoding, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return combined_shape(input_shape, self.combine, self.width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "layout": self.layout,
            "base": self.base,
            "combine": self.combine,
            "width": self.width,
        }
