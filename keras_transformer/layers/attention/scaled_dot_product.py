"""Scaled dot-product attention (Vaswani et al., 2017, eq. 1, https://arxiv.org/abs/1706.03762).

Shapes: B batch, T query length, S key length, H heads, K head_dim; in decoding L cache length, R
rows.
"""

import math

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.layers.alibi import alibi_bias
from keras_transformer.layers.attention.masked_softmax import (
    MASKED_SCORE,
    masked_softmax,
    softmax,
)
from keras_transformer.layers.masks import check_lengths, combined_mask, known_padding_mask


def scaled_dot_product_attention(query, key, value, attention_mask=None, score_bias=None):
    """Returns softmax(query · key / sqrt(K) + bias) · value, with the softmax in float32.

    Args:
        query: `(B, T, H, K)`.
        key: `(B, S, H, K)`.
        value: `(B, S, H, K')`.
        attention_mask: bool, broadcastable to `(B, H, T, S)`; True = attend.
        score_bias: float32, broadcastable to `(B, H, T, S)`; None: 0.
    Returns:
        `(context, weights)`, `(B, T, H, K')` and `(B, H, T, S)`. A row with nothing to attend to
        is zero.
    """
    query = query * (1.0 / math.sqrt(query.shape[-1]))  # on the smaller array, before the product
    scores = ops.cast(ops.einsum("bthk,bshk->bhts", query, key), "float32")
    if score_bias is not None:
        scores = scores + score_bias
    weights = ops.cast(masked_softmax(scores, attention_mask), value.dtype)
    return ops.einsum("bhts,bshk->bthk", weights, value), weights


def check_heads(query_shape, key_shape, value_shape):
    """Raises `ValueError` unless the shapes are of heads that can attend to one another."""
    shapes = [tuple(shape) for shape in (query_shape, key_shape, value_shape)]
    if (
        {len(shape) for shape in shapes} != {4}
        or shapes[0][2:] != shapes[1][2:]
        or shapes[1][2] != shapes[2][2]
    ):
        raise ValueError(
            "query, key and value must have shapes (B, T, H, K), (B, S, H, K) and (B, S, H, K'). "
            f"Received: {', '.join(map(str, shapes))}. MultiHeadAttention makes heads of a width."
        )


@keras.saving.register_keras_serializable("keras_transformer")
class ScaledDotProductAttention(keras.layers.Layer):
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(K)) V for each head; no weights of its own.

    Source: https://arxiv.org/abs/1706.03762, eq. 1. Costs T x S scores a head.

    Args:
        alibi: whether scores fall with the distance, see `alibi_bias`; position information for
            self-attention that has no other.

    Attributes:
        gives_weights: whether the call can return its weights.

    Call arguments:
        query: `(B, T, H, K)`.
        key: `(B, S, H, K)`.
        value: `(B, S, H, K')`.
        padding_mask: bool `(B, S)`, True where a key is real; None: the mask that Keras keeps with
            key and value.
        causal: whether a query sees only its own position and those before it.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = attend.
        return_attention_weights: whether to return the weights too.

    Returns:
        `(B, T, H, K')`, or the pair of it and the weights `(B, H, T, S)`. A row that may attend
        to nothing gives zeros.

    Raises:
        ValueError: other ranks, queries and keys of different widths, masks of other lengths, as
            far as these are known before a graph runs.

    Example:
    >>> x = np.zeros((1, 5, 2, 4))
    >>> ScaledDotProductAttention()(x, x, x, causal=True).shape
    (1, 5, 2, 4)
    """

    gives_weights = True

    def __init__(self, alibi=False, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.alibi = alibi

    def build(self, query_shape, key_shape, value_shape):
        check_heads(query_shape, key_shape, value_shape)

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
        check_heads(query.shape, key.shape, value.shape)
        padding_mask = known_padding_mask(padding_mask, key, value)
        check_lengths(query, key, value, padding_mask, attention_mask)
        mask = combined_mask(query, key, padding_mask, causal, attention_mask)
        num_queries, num_keys = ops.shape(query)[1], ops.shape(key)[1]
        query_positions = ops.arange(num_queries) + (num_keys - num_queries)
        bias = self.score_bias(query_positions, ops.arange(num_keys), query.shape[2])
        context, weights = scaled_dot_product_attention(query, key, value, mask, bias)
        return (context, weights) if return_attention_weights else context

    def score_bias(self, query_positions, key_positions, num_heads):
        """Returns what to add to the scores `(H, T, S)` of positions `(T,)` and `(S,)`, or None."""
        if not self.alibi:
            return None
        return alibi_bias(query_positions[:, None] - key_positions[None], num_heads)

    def may_see(self, query_positions, key_positions):
        """Returns which of the keys up to its own a query may see: all."""
        return key_positions <= query_positions

    def start_cache(self, num_rows, max_length, num_heads, head_dim, value_dim):
        """Returns the empty state of causal decoding: the keys and values seen, `(R, H, L, K)`."""
        return [
            backend.start_cache(num_rows, num_heads, max_length, width, self.compute_dtype)
            for width in (head_dim, value_dim)
        ]

    def decode_step(self, query, key, value, step, cache):
        """One more position of causal self-attention.

        Args:
            query, key, value: `(R, H, K)`, of position `step` alone.
            step: int scalar, counted from 0.
            cache: what `start_cache` or the previous step returned.
        Returns:
            `(context, cache)`, `(R, H, K')` and the cache with this position added.
        """
        num_heads, head_dim = query.shape[1:]
        keys, values = backend.cache_update(cache, step, [key, value])
        query = ops.reshape(query * (1.0 / math.sqrt(head_dim)), (-1, num_heads, 1, head_dim))
        scores = ops.cast(ops.matmul(query, ops.transpose(keys, (0, 1, 3, 2))), "float32")
        positions = ops.arange(ops.shape(keys)[2], dtype="int32")
        if self.alibi:
            scores = scores + self.score_bias(ops.reshape(step, (1,)), positions, num_heads)
        # no row is masked whole: a position sees itself
        weights = softmax(ops.where(self.may_see(step, positions), scores, MASKED_SCORE))
        context = ops.matmul(ops.cast(weights, values.dtype), values)  # (R, H, 1, K')
        return ops.reshape(context, (-1, num_heads, values.shape[-1])), [keys, values]

    def start_memory(self, key, value, padding_mask=None):
        """Returns what `attend_to_memory` reads: the keys and values, with the mask worked in.

        Args:
            key: `(B, S, H, K)`.
            value: `(B, S, H, K')`.
            padding_mask: bool `(B, S)`, True where a key is real.
        Returns:
            Keys `(B, H, K, S)`, values `(B, H, S, K')` and, with a mask, what to add to the scores,
            `(B, 1, 1, S)`.
        """
        if padding_mask is not None:  # zeros: a sentence that is masked whole attends to all
            key, value = (ops.where(padding_mask[..., None, None], x, 0.0) for x in (key, value))
        memory = [ops.transpose(key, (0, 2, 3, 1)), ops.transpose(value, (0, 2, 1, 3))]
        if padding_mask is not None:
            memory.append(ops.where(padding_mask, 0.0, MASKED_SCORE)[:, None, None])
        return memory

    def attend_to_memory(self, query, memory):
        """Returns the context `(B, N, H, K')` of queries `(B, N, H, K)`, as the call does."""
        keys, values, *score_bias = memory
        num_queries, num_heads, head_dim = query.shape[1:]
        query = query * (1.0 / math.sqrt(head_dim))
        if num_queries == 1:  # a reshape costs nothing
            query = ops.reshape(query, (-1, num_heads, 1, head_dim))
        else:
            query = ops.transpose(query, (0, 2, 1, 3))
        scores = ops.cast(ops.matmul(query, keys), "float32")  # (B, H, N, S)
        for bias in score_bias:
            scores = scores + bias
        weights = ops.cast(softmax(scores), values.dtype)
        context = ops.matmul(weights, values)  # (B, H, N, K')
        if num_queries == 1:
            return ops.reshape(context, (-1, 1, num_heads, values.shape[-1]))
        return ops.transpose(context, (0, 2, 1, 3))

    def get_config(self):
        return {**super().get_config(), "alibi": self.alibi}
