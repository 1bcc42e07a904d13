"""Scaled dot-product attention (Vaswani et al., 2017, eq. 1, https://arxiv.org/abs/1706.03762).

Shapes: B batch, T query length, S key length, H heads, K head_dim; in decoding L cache length, R
rows.
"""

import math

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.layers.masks import combined_mask

# Put in place of a masked score; finite, so that a row that is masked whole is finite too.
MASKED_SCORE = -1e9


def scaled_dot_product_attention(query, key, value, attention_mask=None):
    """Returns softmax(query · key / sqrt(K)) · value, with the softmax in float32.

    Args:
        query: `(B, T, H, K)`.
        key: `(B, S, H, K)`.
        value: `(B, S, H, K')`.
        attention_mask: bool, broadcastable to `(B, H, T, S)`; True = attend.
    Returns:
        `(context, weights)`, `(B, T, H, K')` and `(B, H, T, S)`. A row with nothing to attend to
        is zero.
    """
    query = query * (1.0 / math.sqrt(query.shape[-1]))  # on the smaller array, before the product
    scores = ops.cast(ops.einsum("bthk,bshk->bhts", query, key), "float32")
    weights = ops.cast(_masked_softmax(scores, attention_mask), value.dtype)
    return ops.einsum("bhts,bshk->bthk", weights, value), weights


def _masked_softmax(scores, mask):
    if mask is None:
        return _softmax(scores)
    weights = _softmax(ops.where(mask, scores, MASKED_SCORE))
    return ops.where(mask, weights, 0.0)  # else a row that is masked whole would attend to padding


def _softmax(scores):
    if scores.shape[-1] == 1:
        return ops.ones_like(scores)  # of one key Keras would warn
    return ops.softmax(scores)


@keras.saving.register_keras_serializable("keras_transformer")
class ScaledDotProductAttention(keras.layers.Layer):
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(K)) V for each head; no weights of its own.

    Source: https://arxiv.org/abs/1706.03762, eq. 1. Costs T x S scores a head.

    Call arguments:
        query: `(B, T, H, K)`.
        key: `(B, S, H, K)`.
        value: `(B, S, H, K')`.
        padding_mask: bool `(B, S)`, True where a key is real.
        causal: whether a query sees only its own position and those before it.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = attend.
        return_attention_weights: whether to return the weights too.

    Returns:
        `(B, T, H, K')`, or the pair of it and the weights `(B, H, T, S)`. A row that may attend
        to nothing gives zeros.
    """

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
        mask = combined_mask(query, key, padding_mask, causal, attention_mask)
        context, weights = scaled_dot_product_attention(query, key, value, mask)
        return (context, weights) if return_attention_weights else context

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
        seen = ops.arange(ops.shape(keys)[2]) <= step
        # no row is masked whole: a position sees itself
        weights = _softmax(ops.where(seen, scores, MASKED_SCORE))
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
        weights = ops.cast(_softmax(scores), values.dtype)
        context = ops.matmul(weights, values)  # (B, H, N, K')
        if num_queries == 1:
            return ops.reshape(context, (-1, 1, num_heads, values.shape[-1]))
        return ops.transpose(context, (0, 2, 1, 3))

    def get_config(self):
        return super().get_config()  # else Keras records the arguments, and fails on a dtype policy
