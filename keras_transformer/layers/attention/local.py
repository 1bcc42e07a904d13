"""Local attention: a sliding window (Beltagy et al., 2020, section 3.1).

Shapes: B batch, T query length, S key length (equal), H heads, K head_dim, N blocks, C positions
per block.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import check_positive_integers
from keras_transformer.layers.attention.sparse import (
    SparseAttention,
    at_most,
    distances_to_neighbours,
    with_neighbours,
)
from keras_transformer.types import Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class LocalAttention(SparseAttention):
    """Each position sees those at most `window` away: softmax over |t - s| <= window.

    Source: https://arxiv.org/abs/2004.05150, section 3.1, "Sliding Window". The paper's w is the
    width of both sides together, `window` that of one side. Blocks as long as the window attend to
    themselves and their neighbours, so a head computes 3 T window scores (causal: 2 T window), and
    no array of T x T exists. With a window of T - 1 or more it equals `ScaledDotProductAttention`.

    Args:
        window: positions that are visible on each side, besides the position itself; at least 1.
        alibi, dropout: see `ScaledDotProductAttention`.

    Call arguments and Returns: see `SparseAttention`.

    Raises:
        ValueError: window below 1, or an input that `SparseAttention` refuses.

    Example:
    >>> x = np.zeros((1, 9, 2, 4))
    >>> LocalAttention(window=3)(x, x, x, causal=True).shape
    (1, 9, 2, 4)
    """

    def __init__(self, window: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integers(window=window)
        self.window = window

    def pattern(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return ops.abs(query_positions - key_positions) <= self.window

    def _block_size(self, length):
        return at_most(self.window, length)

    def _attend(self, query, key, value, real, causal, training):
        block_size = ops.shape(query)[2]
        key, value, real = (with_neighbours(x, causal) for x in (key, value, real))

        distances = distances_to_neighbours(block_size, causal)
        near = ops.abs(distances) <= self.window
        near = near & (distances >= 0) if causal else near
        mask = near & real[:, :, None]  # (B, N, C, 3 C)
        positions = ops.arange(ops.shape(distances)[1])
        bias = self.score_bias(positions[:block_size] + block_size, positions, query.shape[3])
        return self._attend_within_blocks(query, key, value, mask, bias, training)
