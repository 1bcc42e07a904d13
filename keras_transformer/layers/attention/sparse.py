"""Sparse self-attention, in which a pattern says which positions see which: three patterns.

Shapes: B batch, T length, H heads, K head_dim, K' value_dim, N blocks, C positions per block.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.attention.blocks import (
    at_most,
    distances_to_neighbours,
    from_blocks,
    in_blocks,
    real_positions,
    with_neighbours,
)
from keras_transformer.layers.attention.scaled_dot_product import (
    ScaledDotProductAttention,
    checked_padding_mask,
    refuse_attention_mask,
    scaled_dot_product_attention,
)
from keras_transformer.layers.attention.scores import masked_softmax
from keras_transformer.layers.positions import alibi_bias
from keras_transformer.types import Tensor


class SparseAttention(ScaledDotProductAttention):
    """Scaled dot-product self-attention between those pairs of positions that a pattern allows.

    A subclass defines `pattern`, `_block_size`, and `_attend`, which computes no scores of other
    pairs.

    Call arguments: those of `ScaledDotProductAttention`, except:
        key, value: as long as the query.
        attention_mask: not supported.
        return_attention_weights: computes the dense weights `(B, H, T, T)`, for plots.

    Raises:
        ValueError: an attention_mask, or keys and queries of different static lengths.
    """

    def pattern(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Returns bool, broadcast from both: whether two positions see each other (symmetric)."""
        raise NotImplementedError

    def _block_size(self, length):
        """Returns C, for a sequence of T positions."""
        raise NotImplementedError

    def _attend(self, query, key, value, real, causal, training):
        """Returns the context, `(B, N, C, H, K')`.

        Args:
            query, key, value: `(B, N, C, H, K)`, `(B, N, C, H, K)` and `(B, N, C, H, K')`.
            real: bool `(B, N, C)`, True where a position is real.
        """
        raise NotImplementedError

    def _attend_within_blocks(self, query, key, value, mask, bias, training):
        """Returns the context of queries `(B, N, C, H, K)`, each block as a sentence of its own.

        Args:
            key, value: `(B, N, S, H, K)` and `(B, N, S, H, K')`, what each block may see.
            mask: bool `(B, N, 1 or C, S)`.
            bias: of the scores, see `score_bias`.
        """
        num_sentences, num_blocks, block_size, num_heads = ops.shape(query)[:4]

        def rows(x):
            return ops.reshape(x, (num_sentences * num_blocks, *ops.shape(x)[2:]))

        dropout = self.dropout_of_weights(training)
        context, _ = scaled_dot_product_attention(
            rows(query), rows(key), rows(value), rows(mask)[:, None], bias, dropout
        )
        shape = num_sentences, num_blocks, block_size, num_heads, value.shape[-1]
        return ops.reshape(context, shape)

    def may_see(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        before = super().may_see(query_positions, key_positions)
        return before & self.pattern(query_positions, key_positions)

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Tensor | None = None,
        causal: bool = False,
        attention_mask: Tensor | None = None,
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        refuse_attention_mask(self, attention_mask)
        lengths = query.shape[1], key.shape[1]
        if None not in lengths and lengths[0] != lengths[1]:
            raise InputError(
                f"{type(self).__name__} is self-attention: its pattern depends on distances. "
                f"Received: {lengths[0]} queries, {lengths[1]} keys. "
                "Use ScaledDotProductAttention or LinearAttention."
            )
        padding_mask = checked_padding_mask(query, key, value, padding_mask)
        length = ops.shape(query)[1]
        if return_attention_weights:
            positions = ops.arange(length)
            pairs = self.pattern(positions[:, None], positions)
            return super().call(query, key, value, padding_mask, causal, pairs, True, training)
        size, real = self._block_size(length), real_positions(key, padding_mask)
        query, key, value, real = (in_blocks(x, size) for x in (query, key, value, real))
        context = self._attend(query, key, value, real, causal, training)
        return from_blocks(context, length)

    def start_memory(self, key: Tensor, value: Tensor, padding_mask: Tensor | None = None) -> Any:
        raise InputError(
            f"{type(self).__name__} is self-attention and attends to no source. "
            "Leave cross_attention dense, or make it linear."
        )


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
