"""Strided attention (Child et al., 2019, section 4.2, https://arxiv.org/abs/1904.10509).

Shapes: B batch, T query length, S key length (equal), H heads, K head_dim, N blocks, C positions
per block (the stride).
"""

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.errors import check_positive_integers
from keras_transformer.layers.attention.scores import masked_softmax
from keras_transformer.layers.attention.sparse import (
    SparseAttention,
    distances_to_neighbours,
    with_neighbours,
)
from keras_transformer.layers.positions import alibi_bias
from keras_transformer.types import Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class StridedAttention(SparseAttention):
    """Each position sees its neighbourhood, and every stride-th position beyond it.

    softmax over |t - s| < stride or (t - s) mod stride = 0, both in one softmax (the paper's
    "merged" head). The paper's attention (section 4.2) is causal; without `causal` this one sees
    both sides. A head has 3 T stride + T^2 / stride scores: about T^1.5 with a stride near sqrt(T).
    With a stride of T or more it equals `ScaledDotProductAttention`.

    Args:
        stride: at least 1.
        alibi, dropout: see `ScaledDotProductAttention`.

    Call arguments and Returns: see `SparseAttention`.

    Raises:
        ValueError: stride below 1, or an input that `SparseAttention` refuses.

    Example:
    >>> x = np.zeros((1, 9, 2, 4))
    >>> StridedAttention(stride=3)(x, x, x).shape
    (1, 9, 2, 4)
    """

    def __init__(self, stride: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integers(stride=stride)
        self.stride = stride

    def pattern(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distances = query_positions - key_positions
        return (ops.abs(distances) < self.stride) | (distances % self.stride == 0)

    def _block_size(self, length):
        return self.stride

    def _attend(self, query, key, value, real, causal, training):
        num_blocks, num_heads = ops.shape(query)[1], query.shape[3]
        query = query * (1.0 / math.sqrt(query.shape[-1]))

        # The neighbourhood, block by block.
        near_keys, near_values, near_real = (with_neighbours(x, causal) for x in (key, value, real))
        near_scores = ops.einsum("bnthk,bnshk->bnths", query, near_keys)  # (B, N, C, H, 3 C)
        distances = distances_to_neighbours(self.stride, causal)
        near = ops.abs(distances) < self.stride
        near = near & (distances >= 0) if causal else near
        near_mask = near & near_real[:, :, None]  # (B, N, C, 3 C)

        # Every stride-th position: the same place in all other blocks. `near` covers its own block.
        far_scores = ops.einsum("bnthk,bmthk->bnthm", query, key)  # (B, N, C, H, N)
        blocks = ops.arange(num_blocks)
        others = blocks[:, None] > blocks if causal else blocks[:, None] != blocks
        # as floats: where TensorFlow cannot transpose bools by oneDNN, it logs an error
        far_real = ops.transpose(ops.cast(real, "float32"), (0, 2, 1)) > 0  # (B, C, N)
        far_mask = others[:, None] & far_real[:, None]  # (B, N, C, N)

        near_scores, far_scores = (ops.cast(x, "float32") for x in (near_scores, far_scores))
        if self.alibi:
            between = self.stride * (blocks[:, None] - blocks)
            near_scores = near_scores + ops.transpose(alibi_bias(distances, num_heads), (1, 0, 2))
            far_bias = ops.transpose(alibi_bias(between, num_heads), (1, 0, 2))  # (N, H, N)
            far_scores = far_scores + far_bias[:, None]
        scores = ops.concatenate([near_scores, far_scores], axis=-1)
        mask = ops.concatenate([near_mask, far_mask], axis=-1)[:, :, :, None]
        weights = ops.cast(masked_softmax(scores, mask), value.dtype)
        weights = self.weights_dropout(weights, training=training)
        num_near = ops.shape(distances)[1]
        context = ops.einsum("bnths,bnshk->bnthk", weights[..., :num_near], near_values)
        return context + ops.einsum("bnthm,bmthk->bnthk", weights[..., num_near:], value)
