"""Learned position embedding (Gehring et al., 2017, https://arxiv.org/abs/1705.03122).

Shapes: B batch, T length, D d_model.
"""

import keras
from keras import ops

from keras_transformer.layers.combine import check_combination, combined
from keras_transformer.layers.unquantized import Unquantized
from keras_transformer.layers.whole_numbers import check_whole_numbers


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(Unquantized, keras.layers.Layer):
    """Adds a trained vector for each position.

    The paper of the Transformer tried them and "found that the two versions produced nearly
    identical results" (section 3.5); they end at `max_length`, where the sinusoids go on.

    Args:
        max_length: number of positions in the table.
        combine: "add", or "concatenate": the vector behind the input.
        width: P of a vector that is concatenated; None: D.

    Call arguments:
        x: `(B, T, D)`, T at most `max_length`.

    Returns:
        `(B, T, D)`, or `(B, T, D + P)` where it is concatenated.

    Raises:
        ValueError: another rank, max_length below 1, an unknown combination, or a T known at build
            time above max_length. A T that is known only when the graph runs is held to the
            table's last row.

    Example:
    >>> LearnedPositions(max_length=64)(np.zeros((1, 5, 8))).shape
    (1, 5, 8)
    """

    def __init__(self, max_length, combine="add", width=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        check_whole_numbers(max_length=max_length)
        check_combination(combine, width)
        self.max_length = max_length
        self.combine = combine
        self.width = width

    def build(self, input_shape):
        self.encoding_width = self.width or input_shape[-1]
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, self.encoding_width),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, x):
        length = x.shape[1]
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"x must be at most max_length={self.max_length} positions long. "
                f"Received: x.shape={tuple(x.shape)}. "
                "Raise max_length, shorten the input or use sinusoidal positions."
            )
        return combined(x, self.encode(ops.arange(ops.shape(x)[1])), self.combine)

    def encode(self, positions):
        """Returns `(T, D)` or `(T, P)`, the rows of the table for `positions` `(T,)`."""
        rows = ops.minimum(positions, self.max_length - 1)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), rows, axis=0)

    def compute_output_shape(self, input_shape):
        extra = 0 if self.combine == "add" else self.encoding_width
        return (*input_shape[:-1], input_shape[-1] + extra)

    def get_config(self):
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "combine": self.combine,
            "width": self.width,
        }
