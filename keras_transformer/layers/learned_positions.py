"""Learned position embedding (Gehring et al., 2017, https://arxiv.org/abs/1705.03122).

Shapes: B batch, T length, D d_model.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(keras.layers.Layer):
    """Adds a trained vector for each position.

    The paper of the Transformer tried them and "found that the two versions produced nearly
    identical results" (section 3.5); they end at `max_length`, where the sinusoids go on.

    Args:
        max_length: number of positions in the table.

    Call arguments:
        x: `(B, T, D)`, T at most `max_length`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: max_length below 1, or a T known at build time above it. A T that is known
            only when the graph runs is held to the table's last row.

    Example:
    >>> LearnedPositions(max_length=64)(np.zeros((1, 5, 8))).shape
    (1, 5, 8)
    """

    def __init__(self, max_length, **kwargs):
        super().__init__(**kwargs)
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1. Received: max_length={max_length}.")
        self.max_length = max_length

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, input_shape[-1]),
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
        return x + self.encode(ops.arange(ops.shape(x)[1]))

    def encode(self, positions):
        """Returns `(T, D)`, the rows of the table for `positions` `(T,)`."""
        rows = ops.minimum(positions, self.max_length - 1)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), rows, axis=0)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}
