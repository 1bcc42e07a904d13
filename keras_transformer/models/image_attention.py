"""Where a Vision Transformer looks: maps of attention over the patches of an image.

Shapes: B batch, H heads, T positions (the class token and R C patches), R and C rows and columns
of patches.
"""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.types import Tensor


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
