"""Block attention: a sequence in pieces that do not see each other (Qiu et al., 2020).

Shapes: B batch, T length, H heads, K head_dim, N blocks, C positions of a block.
"""

import keras
from keras import ops

from keras_transformer.layers.attention.scaled_dot_product import scaled_dot_product_attention
from keras_transformer.layers.attention.sparse import (
    SparseAttention,
    from_blocks,
    in_blocks,
    real_positions,
)
from keras_transformer.layers.whole_numbers import check_whole_numbers


@keras.saving.register_keras_serializable("keras_transformer")
class BlockAttention(SparseAttention):
    """Each position sees those of its own block: softmax over t // block_size = s // block_size.

    Source: https://arxiv.org/abs/1911.02972, section 3.1, with the identity as its permutation. A
    head has T block_size scores. With a block of T or more it equals `ScaledDotProductAttention`.

    Args:
        block_size: positions of a block, at least 1.
        alibi: as of `ScaledDotProductAttention`.

    Call arguments and Returns: as of `SparseAttention`.

    Raises:
        ValueError: block_size below 1; what `SparseAttention` refuses.

    Example:
    >>> x = np.zeros((1, 9, 2, 4))
    >>> BlockAttention(block_size=4)(x, x, x).shape
    (1, 9, 2, 4)
    """

    def __init__(self, block_size=16, **kwargs):
        super().__init__(**kwargs)
        check_whole_numbers(block_size=block_size)
        self.block_size = block_size

    def pattern(self, query_positions, key_positions):
        return query_positions // self.block_size == key_positions // self.block_size

    def attend(self, query, key, value, padding_mask, causal):
        length, num_heads = ops.shape(query)[1], query.shape[2]
        real = in_blocks(real_positions(key, padding_mask), self.block_size)
        num_sentences, num_blocks = ops.shape(real)[:2]
        num_rows = num_sentences * num_blocks  # each block as a sentence
        query, key, value = (
            ops.reshape(in_blocks(x, self.block_size), (num_rows, self.block_size, *x.shape[2:]))
            for x in (query, key, value)
        )
        mask = ops.reshape(real, (num_rows, 1, 1, self.block_size))
        positions = ops.arange(self.block_size)
        if causal:
            mask = mask & (positions[:, None] >= positions[None])
        bias = self.score_bias(positions, positions, num_heads)
        context, _ = scaled_dot_product_attention(query, key, value, mask, bias)
        shape = num_sentences, num_blocks, self.block_size, num_heads, value.shape[-1]
        return from_blocks(ops.reshape(context, shape), length)

    def get_config(self):
        return {**super().get_config(), "block_size": self.block_size}
