"""The Vision Transformer (Dosovitskiy et al., 2021, https://arxiv.org/abs/2010.11929).

Shapes: B batch, N patches, T positions (N, and one more with a class token), D d_model, H heads, R
and C rows and columns of patches.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.config.presets import model_preset
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers import Dense, Encoder, PatchEmbedding
from keras_transformer.layers.image_embeddings import height_and_width, with_known_size
from keras_transformer.layers.stack import check_num_heads
from keras_transformer.models.base import BaseModel, build_parts
from keras_transformer.types import Self, Shape, Tensor

POOLINGS = ("class_token", "mean")


@keras.saving.register_keras_serializable("keras_transformer")
class VisionTransformer(BaseModel):
    """Classifies images: patches are the tokens of an encoder, whose output is pooled.

    The defaults are ViT-B/16 (table 1) for images of 224 pixels. As in the paper (eq. 1 to 4), the
    encoder is pre-norm, and its output is normalized before it is pooled. Dense kernels start as
    Keras starts them, and unlike in the paper's own code the head does not start at zero.

    Args:
        num_classes: number of classes; None: a model without a head, whose output is pooled alone.
        image_size: height and width of an image in pixels: a pair, or an int for both.
        patch_size: height and width of a patch in pixels, which must divide those of the image.
        num_channels: channels of an image, such as 3 for colours and 1 for grey.
        num_layers: number of blocks.
        d_model: D, the width of the model.
        ff_dim: width of the feed-forward networks' inner layer.
        num_heads: H, which must divide D.
        dropout: rate on the embeddings and on each sublayer's output.
        pooling: "class_token", the output at a learned vector that stands before the patches; or
            "mean", the mean of the outputs of all patches, without such a vector (section D.3).
        representation_dim: width of a dense layer with tanh between pooling and head, which the
            paper has in pre-training (section 3.1); None: no such layer.
        resize_positions: whether images of another size are accepted, see `PatchEmbedding`.
        activation: activation of the feed-forward networks; "gelu" is the exact one.
        layer_norm_epsilon: see `LayerNormalization`.

    Call arguments:
        images: `(B, height, width, num_channels)`.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        The logits `(B, num_classes)`, or without a head `(B, D)` (or representation_dim). With
        return_attention_weights, a pair of it and a list of `(B, H, T, T)`, one for each block.

    Raises:
        ValueError: sizes below 1, num_heads not dividing d_model, unknown pooling, or what
            `PatchEmbedding` refuses.

    Example:
    >>> model = VisionTransformer(10, image_size=8, patch_size=4, num_channels=1, num_layers=1,
    ...                           d_model=16, ff_dim=32, num_heads=2)
    >>> model(np.zeros((1, 8, 8, 1))).shape
    (1, 10)
    """

    def __init__(
        self,
        num_classes: int,
        image_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        num_channels: int = 3,
        num_layers: int = 12,
        d_model: int = 768,
        ff_dim: int = 3072,
        num_heads: int = 12,
        dropout: float = 0.1,
        pooling: str = "class_token",
        representation_dim: int | None = None,
        resize_positions: bool = False,
        activation: str = "gelu",
        layer_norm_epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_integers(
            ("num_classes", "representation_dim"),
            num_classes=num_classes,
            num_channels=num_channels,
            representation_dim=representation_dim,
        )
        if pooling not in POOLINGS:
            raise InputError(f"pooling must be one of {POOLINGS}. Received: {pooling=}.")
        check_num_heads(d_model, num_heads)
        self.num_classes = num_classes
        self.image_size = height_and_width(image_size)
        self.patch_size = patch_size
        self.num_channels = num_channels
        self.num_layers = num_layers
        self.d_model = d_model
        self.ff_dim = ff_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.pooling = pooling
        self.representation_dim = representation_dim
        self.resize_positions = resize_positions
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

        policy = self.dtype_policy
        embedding = PatchEmbedding(
            image_size,
            patch_size,
            d_model,
            class_token=pooling == "class_token",
            resize_positions=resize_positions,
            dtype=policy,
            name="embedding",
        )
        self.encoder = Encoder(
            embedding,
            num_layers,
            num_heads,
            ff_dim,
            dropout=dropout,
            normalize_first=True,
            activation=activation,
            positions=None,  # the embedding adds them
            layer_norm_epsilon=layer_norm_epsilon,
            dtype=policy,
            name="encoder",
        )
        self.representation = self.head = None
        if representation_dim is not None:
            self.representation = Dense(
                representation_dim, "tanh", dtype=policy, name="representation"
            )
        if num_classes is not None:
            self.head = Dense(num_classes, dtype=policy, name="head")
        self.build_when_made((None, *self.image_size, num_channels))

    @classmethod
    def from_preset(cls, name: str, num_classes: int, **overrides: Any) -> Self:
        """Returns the model of a preset ("vit_b_16"); `overrides` replace arguments."""
        return cls(num_classes, **{**model_preset(name, "vision_transformer"), **overrides})

    @property
    def grid(self) -> tuple[int, int]:
        """The numbers of rows and columns of patches in an image of `image_size`."""
        return self.encoder.embedding.grid

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        encoder = self.encoder, (None, *self.image_size, self.num_channels)
        representation = self.representation, (None, self.d_model)
        head = self.head, (None, self.representation_dim or self.d_model)
        build_parts(self, encoder, representation, head)

    def compute_output_spec(self, images: Tensor, **options: Any) -> Any:
        return super().compute_output_spec(with_known_size(images, self.image_size), **options)

    def call(
        self, images: Tensor, return_attention_weights: bool = False, training: bool = False
    ) -> Tensor:
        result = self.encoder(
            images, return_attention_weights=return_attention_weights, training=training
        )
        x, weights = result if return_attention_weights else (result, None)
        x = x[:, 0] if self.pooling == "class_token" else ops.mean(x, axis=1)
        if self.representation is not None:
            x = self.representation(x)
        if self.head is not None:
            x = self.head(x)
        return (x, weights) if return_attention_weights else x


def class_token_attention(weights: Sequence[Tensor], grid: tuple[int, int]) -> np.ndarray:
    """Returns what the class token of the last block attends to, the mean over the heads.

    Args:
        weights: list of `(B, H, T, T)`, one for each block, as `VisionTransformer` returns them.
        grid: (R, C), such as `model.grid`.
    Returns:
        Array `(B, R, C)`. What the class token gives to itself is left out: each map sums to 1,
        or to 0 if no patch gets anything.
    Raises:
        ValueError: no weights, or T is not 1 + R C.
    """
    return _map(_means_over_heads(weights[-1:])[0], grid)


def attention_rollout(weights: Sequence[Tensor], grid: tuple[int, int]) -> np.ndarray:
    """Returns how much of each patch reaches the class token through all blocks.

    A~_l = (A_l + I) / 2 · A~_{l-1}, from the first block to the last, where A_l is the mean of the
    heads and I stands for the residual connection (attention rollout of Abnar and Zuidema, 2020,
    section 3, https://arxiv.org/abs/2005.00928).

    Args, Returns, Raises: see `class_token_attention`.
    """
    total = None
    for attention in _means_over_heads(weights):
        attention = (attention + np.eye(attention.shape[-1])) / 2
        total = attention if total is None else attention @ total
    return _map(total, grid)


def _means_over_heads(weights):
    """Returns an array `(B, T, T)` for each block."""
    ranks = [len(ops.shape(layer)) for layer in weights]
    if not ranks or set(ranks) != {4}:
        raise InputError(
            "Expected a list of attention weights (B, H, T, T), one for each block. "
            f"Received: weights of the ranks {ranks}."
        )
    arrays = [ops.convert_to_numpy(ops.cast(layer, "float32")) for layer in weights]
    return [array.mean(axis=1, dtype="float64") for array in arrays]


def _map(attention, grid):
    """Returns `(B, R, C)`, the first row of `attention` `(B, T, T)` without its first entry."""
    rows, columns = grid
    if attention.shape[-1] != 1 + rows * columns:
        raise InputError(
            f"Expected weights between 1 + {rows} x {columns} positions, of a model with a class "
            f"token. Received: grid={tuple(grid)}, weights of {attention.shape[-1]} positions. "
            "Give the grid of the images, and a model with pooling='class_token'."
        )
    of_patches = attention[:, 0, 1:]
    total = of_patches.sum(axis=-1, keepdims=True)
    of_patches = of_patches / np.maximum(total, np.finfo("float32").tiny)
    return of_patches.reshape(-1, rows, columns)
