"""What the sparse variants of self-attention share: a pattern of who may see whom.

Shapes: B batch, T length, H heads, K head_dim, N blocks, C positions of a block.
"""

from keras import ops

from keras_transformer.layers.attention.scaled_dot_product import (
    ScaledDotProductAttention,
    check_heads,
)
from keras_transformer.layers.masks import check_lengths, known_padding_mask


class SparseAttention(ScaledDotProductAttention):
    """Scaled dot-product self-attention among the pairs of positions that a pattern names.

    A subclass has the `pattern`, and computes it in `attend` without the scores of other pairs.

    Call arguments, as of `ScaledDotProductAttention`; but:
        key, value: as long as the query.
        attention_mask: None, or it is refused.
        return_attention_weights: the weights `(B, H, T, T)` are made densely, for pictures.

    Raises:
        ValueError: an attention_mask, or keys of another length than the queries, as far as that
            is known before a graph runs.
    """

    def pattern(self, query_positions, key_positions):
        """Returns bool, broadcast from both: whether the one may see the other, in either order."""
        raise NotImplementedError

    def attend(self, query, key, value, padding_mask, causal):
        """Returns the context, `(B, T, H, K')`; padding_mask may be None."""
        raise NotImplementedError

    def may_see(self, query_positions, key_positions):
        before = super().may_see(query_positions, key_positions)
        return before & self.pattern(query_positions, key_positions)

    def call(
        self,
        query,
        key,
        value,
        padding_mask=None,
        causal=False,
        attention_mask=None,
        return_attention_weights=False,
    ):
        if attention_mask is not None:
            raise ValueError(
                f"{type(self).__name__} honours padding_mask and causal. Received: an "
                f"attention_mask of shape {tuple(attention_mask.shape)}, which may name any pair. "
                "Use ScaledDotProductAttention."
            )
        lengths = query.shape[1], key.shape[1]
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(
                f"{type(self).__name__} is self-attention: its pattern is one of distances. "
                f"Received: {lengths[0]} queries, {lengths[1]} keys. "
                "Use ScaledDotProductAttention or LinearAttention."
            )
        check_heads(query.shape, key.shape, value.shape)
        padding_mask = known_padding_mask(padding_mask, key, value)
        check_lengths(query, key, value, padding_mask)
        if not return_attention_weights:
            return self.attend(query, key, value, padding_mask, causal)
        positions = ops.arange(ops.shape(query)[1])
        pairs = self.pattern(positions[:, None], positions)
        return super().call(query, key, value, padding_mask, causal, pairs, True)

    def start_memory(self, key, value, padding_mask=None):
        raise ValueError(
            f"{type(self).__name__} is self-attention and attends to no source. "
            "Leave cross_attention dense, or make it linear."
        )


def at_most(size, length):
    """Returns the smaller of both, at least 1; the size where JAX has but a name for the length."""
    if isinstance(length, int):
        return max(1, min(size, length))
    return ops.maximum(1, ops.minimum(size, length)) if ops.is_tensor(length) else size


def in_blocks(x, block_size):
    """Returns `x` `(B, T, ...)` as `(B, N, C, ...)`, filled up with zeros at the end."""
    length = ops.shape(x)[1]
    num_blocks = -(-length // block_size)
    missing = num_blocks * block_size - length
    num_sentences = ops.shape(x)[0]
    x = ops.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (len(x.shape) - 2))
    return ops.reshape(x, (num_sentences, num_blocks, block_size, *x.shape[2:]))


def from_blocks(x, length):
    """Returns `(B, T, ...)` of `x` `(B, N, C, ...)`: the inverse of `in_blocks`."""
    num_sentences, num_blocks, block_size = ops.shape(x)[:3]
    return ops.reshape(x, (num_sentences, num_blocks * block_size, *x.shape[3:]))[:, :length]


def real_positions(x, padding_mask):
    """Returns `(B, T)` bool, which positions of `x` `(B, T, ...)` are real."""
    if padding_mask is not None:
        return ops.cast(padding_mask, "bool")
    return ops.ones((ops.shape(x)[0], ops.shape(x)[1]), dtype="bool")


def with_neighbours(blocks, causal):
    """Returns each block behind the one before it and, if not causal, before the one after it.

    Args:
        blocks: `(B, N, C, ...)`.
    Returns:
        `(B, N, 2 C, ...)` or `(B, N, 3 C, ...)`; beyond the ends are zeros, or False.
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
