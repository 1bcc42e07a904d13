"""Learned position embedding (Gehring et al., 2017, https://arxiv.org/abs/1705.03122).

Shapes: B batch, T length, D d_model, P width of an encoding that is concatenated.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers.combine import check_combination, combined, combined_shape
from keras_transformer.layers.positive_integers import check_positive_integers
from keras_transformer.layers.unquantized import Unquantized
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(Unquantized, keras.layers.Layer):
    """Adds a learned vector for each position.

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
        super().__init__(**kwargs)
        self.supports_masking = True
        check_positive_integers(max_length=max_length)
        check_combination(combine, width)
        self.max_length = max_length
        self.combine = combine
        self.width = width

    def build(self, input_shape: Shape) -> None:
        self.encoding_width = self.width or input_shape[-1]
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
        return combined(x, self.encode(ops.arange(ops.shape(x)[1])), self.combine)

    def encode(self, positions: Tensor) -> Tensor:
        """Returns `(T, D)` or `(T, P)`, the rows of the table for `positions` `(T,)`."""
        rows = ops.minimum(positions, self.max_length - 1)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), rows, axis=0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return combined_shape(input_shape, self.combine, self.width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "combine": self.combine,
            "width": self.width,
        }
