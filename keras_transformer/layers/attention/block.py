"""Block attention: blocks of a sequence that do not see each other (Qiu et al., 2020).

Shapes: B batch, T length, H heads, K head_dim, N blocks, C positions per block.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import check_positive_integers
from keras_transformer.layers.attention.sparse import SparseAttention
from keras_transformer.types import Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class BlockAttention(SparseAttention):
    """Each position sees only its own block: softmax over t // block_size = s // block_size.

    Source: https://arxiv.org/abs/1911.02972, section 3.1; unlike there, every head uses the
    identity as its permutation. Costs T block_size scores per head. With a block of T or more it
    equals `ScaledDotProductAttention`.

    Args:
        block_size: positions per block, at least 1.
        alibi, dropout: see `ScaledDotProductAttention`.

    Call arguments and Returns: see `SparseAttention`.

    Raises:
        ValueError: block_size below 1, or an input that `SparseAttention` refuses.

    Example:
    >>> x = np.zeros((1, 9, 2, 4))
    >>> BlockAttention(block_size=4)(x, x, x).shape
    (1, 9, 2, 4)
    """

    def __init__(self, block_size: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integers(block_size=block_size)
        self.block_size = block_size

    def pattern(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return query_positions // self.block_size == key_positions // self.block_size

    def _block_size(self, length):
        return self.block_size

    def _attend(self, query, key, value, real, causal, training):
        mask = real[:, :, None]  # (B, N, 1, C)
        positions = ops.arange(self.block_size)
        if causal:
            mask = mask & (positions[:, None] >= positions)
        bias = self.score_bias(positions, positions, query.shape[3])
        return self._attend_within_blocks(query, key, value, mask, bias, training)
