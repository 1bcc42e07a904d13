"""Common code of sparse self-attention, in which a pattern says which positions see which.

Shapes: B batch, T length, H heads, K head_dim, K' value_dim, N blocks, C positions per block.
"""

from typing import Any

from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers.attention.scaled_dot_product import (
    ScaledDotProductAttention,
    checked_padding_mask,
    refuse_attention_mask,
    scaled_dot_product_attention,
)
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


def at_most(size, length):
    """Returns the smaller of both, at least 1; `size` if the length is symbolic, as in JAX."""
    if isinstance(length, int):
        return max(1, min(size, length))
    return ops.maximum(1, ops.minimum(size, length)) if ops.is_tensor(length) else size


def in_blocks(x, block_size):
    """Returns `x` `(B, T, ...)` as `(B, N, C, ...)`, padded with zeros at the end."""
    length = ops.shape(x)[1]
    num_blocks = -(-length // block_size)
    missing = num_blocks * block_size - length
    num_sentences = ops.shape(x)[0]
    x = ops.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (len(x.shape) - 2))
    return ops.reshape(x, (num_sentences, num_blocks, block_size, *x.shape[2:]))


def from_blocks(x, length):
    """Returns `x` `(B, N, C, ...)` as `(B, T, ...)`: the inverse of `in_blocks`."""
    num_sentences, num_blocks, block_size = ops.shape(x)[:3]
    return ops.reshape(x, (num_sentences, num_blocks * block_size, *x.shape[3:]))[:, :length]


def real_positions(x, padding_mask):
    """Returns bool `(B, T)`, True where a position of `x` `(B, T, ...)` is real."""
    if padding_mask is not None:
        # one mask may be that of all sentences
        return ops.broadcast_to(ops.cast(padding_mask, "bool"), ops.shape(x)[:2])
    return ops.ones((ops.shape(x)[0], ops.shape(x)[1]), dtype="bool")


def with_neighbours(blocks, causal):
    """Concatenates each block with the previous one and, if not causal, with the next one.

    Args:
        blocks: `(B, N, C, ...)`.
    Returns:
        `(B, N, 2 C, ...)` or `(B, N, 3 C, ...)`, with zeros or False beyond the ends.
    """
    num_blocks = ops.shape(blocks)[1]
    beyond = ops.zeros_like(blocks[:, :1])
    padded = ops.concatenate([beyond, blocks] if causal else [beyond, blocks, beyond], axis=1)
    parts = [padded[:, i : i + num_blocks] for i in range(2 if causal else 3)]
    return ops.concatenate(parts, axis=2)


def distances_to_neighbours(block_size, causal):
    """Returns `(C, 2 C)` or `(C, 3 C)`: query position minus key position of `with_neighbours`."""
    keys = ops.arange((2 if causal else 3) * block_size) - block_size
    return ops.arange(block_size)[:, None] - keys[None]
