"""A small convolutional network that turns images into rows of features.

Shapes: B batch, R and C rows and columns of the grid of features, N cells (R C), D d_model.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer
from keras_transformer.layers.grid_positions import GridPositions
from keras_transformer.layers.patch_embedding import check_image_shape, height_and_width
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class ConvolutionalEmbedding(Layer):
    """Convolutions that each halve the image, then learned positions for the grid of features.

    It stands where `PatchEmbedding` does, as the features of a convolutional network that "Show,
    attend and tell" attends to (Xu et al., 2015, section 3.1.1, https://arxiv.org/abs/1502.03044)
    or the hybrid architecture of Dosovitskiy et al. (2021, section 3.1). There the network is
    large and trained before; here it is trained with the rest. Xu et al. add no positions.

    Args:
        image_size: height and width of an image in pixels: a pair, or an int for both.
        d_model: D.
        num_convolutions: number of convolutions of 3 x 3 pixels with stride 2 and a rectifier. The
            last has D filters, each before it half as many as the next.

    Call arguments:
        images: `(B, height, width, channels)`, numbers of any type.

    Returns:
        `(B, N, D)`, the cells row by row from the top left.

    Raises:
        ValueError: sizes below 1, more convolutions than can halve the image, another rank, another
            number of channels or another size.

    Example:
    >>> ConvolutionalEmbedding(image_size=8, d_model=16)(np.zeros((1, 8, 8, 3))).shape
    (1, 4, 16)
    """

    supports_masking = False  # images have no padding

    def __init__(
        self,
        image_size: int | tuple[int, int],
        d_model: int,
        num_convolutions: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image_size = height_and_width(image_size)
        check_positive_integers(d_model=d_model, num_convolutions=num_convolutions)
        most = max(1, (max(self.image_size) - 1).bit_length())
        if num_convolutions > most:
            raise InputError(
                f"Expected at most {most} convolutions, which leave a single cell of the image. "
                f"Received: num_convolutions={num_convolutions}, image_size={self.image_size}. "
                "Lower num_convolutions, or take larger images."
            )
        self.d_model = d_model
        self.num_convolutions = num_convolutions
        stride = 2**num_convolutions
        self.grid = tuple(-(-size // stride) for size in self.image_size)  # rounded up
        policy = self.dtype_policy
        options = dict(kernel_size=3, strides=2, padding="same", data_format="channels_last")
        options |= dict(activation="relu", dtype=policy)
        num_filters = [max(1, d_model * 2 ** (i + 1) // stride) for i in range(num_convolutions)]
        self.convolutions = [
            keras.layers.Conv2D(number, **options, name=f"convolution_{i}")
            for i, number in enumerate(num_filters)
        ]
        self.positions = GridPositions(*self.grid, dtype=policy, name="positions")

    def build(self, input_shape: Shape) -> None:
        check_image_shape(input_shape, input_shape[-1] or "channels")
        self.num_channels = input_shape[-1]
        shape = (None, *self.image_size, self.num_channels)
        for convolution in self.convolutions:
            convolution.build(shape)
            shape = convolution.compute_output_shape(shape)
        self.positions.build(shape)

    def call(self, images: Tensor) -> Tensor:
        check_image_shape(getattr(images, "shape", ()), self.num_channels, self.image_size)
        x = backend.ensure_shape(images, (None, *self.image_size, self.num_channels))
        x = ops.cast(x, self.compute_dtype)
        batch = ops.shape(x)[0]
        x = _at_least_one(x, batch)
        for convolution in self.convolutions:
            x = convolution(x)
        x = self.positions(x)[:batch]
        rows, columns = self.grid
        return ops.reshape(x, (batch, rows * columns, self.d_model))  # (B, N, D)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        rows, columns = self.grid
        return input_shape[0], rows * columns, self.d_model


def _at_least_one(images, batch):
    """Returns the images, or a black one for an empty batch.

    TensorFlow's convolution of no image has a wrong shape on a CPU. There alone is the size of a
    batch unknown, None, when a graph is built.
    """
    if images.shape[0] not in (None, 0):
        return images
    num_missing = ops.maximum(1 - batch, 0)
    black = ops.zeros((num_missing, *images.shape[1:]), images.dtype)
    return ops.concatenate([images, black], axis=0)
