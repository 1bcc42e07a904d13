"""Learned positions on a grid (Dosovitskiy et al., 2021, https://arxiv.org/abs/2010.11929).

Shapes: B batch, R rows, C columns, D d_model.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer, NotQuantized
from keras_transformer.types import Shape, Tensor

SHARPNESS = -0.75
"""The constant a of cubic convolution; Keys chose -0.5, OpenCV and PyTorch -0.75."""


@keras.saving.register_keras_serializable("keras_transformer")
class GridPositions(NotQuantized, Layer):
    """Adds a learned vector for each cell of a grid, such as the patches of an image.

    For images of another size, the paper performs "2D interpolation of the pre-trained position
    embeddings, according to their location in the original image" (section 3.2), and does not name
    the interpolation. It is bicubic here, see `resized_grid`.

    Args:
        rows: R, number of rows of the table.
        columns: C, number of columns of the table.
        resize: whether another grid is accepted, for which the table is resized.

    Call arguments:
        x: `(B, R, C, D)`.

    Returns:
        `(B, R, C, D)`.

    Raises:
        ValueError: sizes below 1, another rank, or another grid without `resize`. Without `resize`
            the grid must be known when a graph is built.

    Example:
    >>> GridPositions(4, 4, resize=True)(np.zeros((1, 3, 5, 8))).shape
    (1, 3, 5, 8)
    """

    supports_masking = False  # images have no padding

    def __init__(self, rows: int, columns: int, resize: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integers(rows=rows, columns=columns)
        self.rows = rows
        self.columns = columns
        self.resize = resize

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 4:
            raise InputError(
                "x must have shape (B, R, C, D). "
                f"Received: x.shape={tuple(input_shape)}. Do not flatten the grid."
            )
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.rows, self.columns, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, x: Tensor) -> Tensor:
        table = self.embeddings
        if tuple(x.shape[1:3]) != (self.rows, self.columns):
            if not self.resize:
                raise InputError(
                    f"x must have {self.rows} rows and {self.columns} columns, known when a graph "
                    f"is built. Received: x.shape={tuple(x.shape)}. "
                    "Resize the images, or the positions (resize=True)."
                )
            table = resized_grid(table, ops.shape(x)[1], ops.shape(x)[2])
        return x + ops.cast(table, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


def resized_grid(grid, num_rows, num_columns):
    """Returns a grid of vectors, resized by bicubic interpolation, which Keras's backends vary.

    Cubic convolution (Keys, 1981, eq. 4) with a = -0.75 and cells as areas (half-pixel centres),
    as in PyTorch's `interpolate(mode="bicubic")`. Vectors outside of the grid equal the nearest
    inside. A smaller grid is sampled without smoothing. The same size gives the same grid.

    Args:
        grid: `(R, C, D)`.
        num_rows, num_columns: size of the result, ints or int scalars.
    Returns:
        `(num_rows, num_columns, D)` float32.
    """
    grid = ops.cast(grid, "float32")
    row_weights = _cubic_weights(num_rows, grid.shape[0])
    column_weights = _cubic_weights(num_columns, grid.shape[1])
    return ops.einsum("ir,jc,rcd->ijd", row_weights, column_weights, grid)


def _cubic_weights(new_size, old_size):
    """Returns `(new_size, old_size)`: how much of each old cell is in each new one."""
    cells = ops.cast(ops.arange(new_size), "float32")
    centres = (cells + 0.5) * (old_size / ops.cast(new_size, "float32")) - 0.5
    nearest = ops.floor(centres)
    weights = 0.0
    for offset in (-1, 0, 1, 2):
        indices = ops.clip(ops.cast(nearest, "int32") + offset, 0, old_size - 1)
        distances = ops.abs(centres - nearest - offset)
        weights = weights + _cubic(distances)[:, None] * ops.one_hot(indices, old_size)
    return weights


def _cubic(x):
    """Returns the kernel of cubic convolution at distances `x` from 0 to 2."""
    a = SHARPNESS
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return ops.where(x <= 1, near, far)
