"""What turns images into rows of vectors: patches, or a small convolutional network.

Shapes: B batch, P patch_size, R and C rows and columns of patches or cells, N their number (R C), D
d_model.
"""

import numbers
from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.grid_positions import GridPositions
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class PatchEmbedding(Layer):
    """Cuts images into patches, projects each to D and adds learned positions.

    z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos (Dosovitskiy et al., 2021, section 3.1, eq. 1,
    https://arxiv.org/abs/2010.11929). Here E has a bias, as in the paper's own code. The patches
    come row by row, from the top left.

    Args:
        image_size: height and width of an image in pixels: a pair, or an int for both.
        patch_size: P, height and width of a patch in pixels, which must divide those of the image.
        d_model: D.
        class_token: whether a learned vector stands before the patches.
        resize_positions: whether images of another size are accepted; their positions are resized
            by bicubic interpolation, see `GridPositions`.

    Call arguments:
        images: `(B, height, width, channels)`, numbers of any type.

    Returns:
        `(B, N, D)`, or `(B, 1 + N, D)` with the class token.

    Raises:
        ValueError: sizes below 1, a patch size that does not divide the image, another rank or
            number of channels, or another size of image without `resize_positions`.

    Example:
    >>> PatchEmbedding(image_size=8, patch_size=4, d_model=16)(np.zeros((1, 8, 8, 3))).shape
    (1, 4, 16)
    """

    supports_masking = False  # images have no padding

    def __init__(
        self,
        image_size: int | tuple[int, int],
        patch_size: int,
        d_model: int,
        class_token: bool = False,
        resize_positions: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image_size = height_and_width(image_size)
        check_positive_integers(patch_size=patch_size, d_model=d_model)
        self.patch_size = patch_size
        self.d_model = d_model
        self.class_token = class_token
        self.resize_positions = resize_positions
        self.grid = self.grid_of(*self.image_size)
        policy = self.dtype_policy
        self.projection = Dense(d_model, dtype=policy, name="projection")
        self.positions = GridPositions(
            *self.grid, resize=resize_positions, dtype=policy, name="positions"
        )

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """Returns the numbers of rows and columns of patches in an image of `height` x `width`."""
        if min(height, width) < 1 or height % self.patch_size or width % self.patch_size:
            raise InputError(
                "patch_size must divide the height and the width of an image. Received: "
                f"patch_size={self.patch_size}, height={height}, width={width}. "
                "Choose another patch size, or resize the images."
            )
        return height // self.patch_size, width // self.patch_size

    def build(self, input_shape: Shape) -> None:
        check_image_shape(input_shape, input_shape[-1] or "channels")
        self.num_channels = input_shape[-1]
        self.projection.build((None, None, None, self.patch_size**2 * self.num_channels))
        self.positions.build((None, *self.grid, self.d_model))
        if self.class_token:
            self.class_embedding = self.add_weight(
                name="class_embedding", shape=(self.d_model,), initializer="zeros"
            )
            self.class_position = self.add_weight(
                name="class_position",
                shape=(self.d_model,),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

    def call(self, images: Tensor) -> Tensor:
        size = (None, None) if self.resize_positions else self.image_size
        check_image_shape(getattr(images, "shape", ()), self.num_channels, size)
        images = backend.ensure_shape(images, (None, *size, self.num_channels))
        x = self.positions(self.projection(self._patches(ops.cast(images, self.compute_dtype))))
        batch, rows, columns, _ = ops.shape(x)
        x = ops.reshape(x, (batch, rows * columns, self.d_model))  # (B, N, D)
        if not self.class_token:
            return x
        first = ops.cast(self.class_embedding + self.class_position, x.dtype)
        first = ops.broadcast_to(first, (batch, 1, self.d_model))
        return ops.concatenate([first, x], axis=1)

    def _patches(self, images):
        """Returns `(B, R, C, P * P * channels)`, the pixels of each patch row by row."""
        size = self.patch_size
        batch, height, width, channels = ops.shape(images)
        static_height, static_width = images.shape[1:3]
        if static_height is not None and static_width is not None:
            self.grid_of(static_height, static_width)
        rows, columns = height // size, width // size
        x = ops.reshape(images, (batch, rows, size, columns, size, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (batch, rows, columns, size * size * channels))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        length = None
        if None not in input_shape[1:3]:
            rows, columns = self.grid_of(*input_shape[1:3])
            length = rows * columns + int(self.class_token)
        return input_shape[0], length, self.d_model


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


def height_and_width(image_size):
    """Returns the height and the width that `image_size` means: a pair, or an int for both."""
    is_pair = isinstance(image_size, tuple | list) and len(image_size) == 2
    if not is_pair and not isinstance(image_size, numbers.Integral):
        raise InputError(
            f"image_size must be a height and a width, or an int for both. Received: {image_size=}."
        )
    height, width = image_size if is_pair else (image_size, image_size)
    check_positive_integers(height=height, width=width)
    return int(height), int(width)


def with_known_size(images, image_size):
    """Returns a symbolic tensor of images in which an unknown height or width is `image_size`.

    So the outputs of a functional model can be inferred on backends whose tensors have known sizes.
    """
    batch, *size, channels = images.shape
    size = [given or expected for given, expected in zip(size, image_size, strict=True)]
    return keras.KerasTensor((batch, *size, channels), images.dtype)


def check_image_shape(shape, num_channels, image_size=(None, None)):
    """Raises `ValueError` unless `shape` is that of images; None: any size, or not yet known."""
    if len(shape) != 4 or shape[-1] not in (None, num_channels):
        raise InputError(
            f"images must have shape (B, height, width, {num_channels}). "
            f"Received: images.shape={tuple(shape)}. "
            "The channels come last; an image without colour has one channel."
        )
    for size, expected in zip(shape[1:3], image_size, strict=True):
        if None not in (size, expected) and size != expected:
            raise InputError(
                f"images must be {image_size[0]} pixels high and {image_size[1]} wide. "
                f"Received: images.shape={tuple(shape)}. "
                "Resize the images, or make patch embeddings with resize_positions=True."
            )


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
