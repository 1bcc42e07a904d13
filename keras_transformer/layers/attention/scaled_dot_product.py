"""Scaled dot-product attention (Vaswani et al., 2017, eq. 1, https://arxiv.org/abs/1706.03762).

Shapes: B batch, T query length, S key length, H heads, K head_dim, K' value_dim; in decoding L
cache length, R rows, N hypotheses of each input.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError
from keras_transformer.layers.attention.scores import MASKED_SCORE, masked_softmax, softmax
from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.masks import check_lengths, combined_mask, known_padding_mask
from keras_transformer.layers.positions import alibi_bias
from keras_transformer.types import Shape, Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    score_bias: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns softmax(query · key / sqrt(K) + bias) · value, with the softmax in float32.

    Args:
        query: `(B, T, H, K)`.
        key: `(B, S, H, K)`.
        value: `(B, S, H, K')`.
        attention_mask: bool, broadcastable to `(B, H, T, S)`; True = attend.
        score_bias: float32, broadcastable to `(B, H, T, S)`; None: 0.
        dropout: function that drops some of the weights before the product; None: all are kept.
    Returns:
        `(context, weights)`: `(B, T, H, K')` and `(B, H, T, S)`, the weights before dropout. A row
        with nothing to attend to is zero.
    """
    # Scaling the query is cheaper than scaling the scores.
    query = query * (1.0 / math.sqrt(query.shape[-1]))
    scores = ops.cast(ops.einsum("bthk,bshk->bhts", query, key), "float32")
    if score_bias is not None:
        scores = scores + score_bias
    weights = ops.cast(masked_softmax(scores, attention_mask), value.dtype)
    kept = weights if dropout is None else dropout(weights)
    return ops.einsum("bhts,bshk->bthk", kept, value), weights


def check_heads(query_shape, key_shape, value_shape):
    """Raises `ValueError` unless these are the shapes of heads that can attend to one another."""
    shapes = [tuple(shape) for shape in (query_shape, key_shape, value_shape)]
    if (
        {len(shape) for shape in shapes} != {4}
        or shapes[0][2:] != shapes[1][2:]
        or shapes[1][2] != shapes[2][2]
    ):
        raise InputError(
            "query, key and value must have shapes (B, T, H, K), (B, S, H, K) and (B, S, H, K'). "
            f"Received: {', '.join(map(str, shapes))}. "
            "Let MultiHeadAttention split (B, T, D) into heads."
        )


def checked_padding_mask(query, key, value, padding_mask, attention_mask=None):
    """Returns the padding mask `(B, S)` or None, see `known_padding_mask`; checks all shapes."""
    check_heads(query.shape, key.shape, value.shape)
    padding_mask = known_padding_mask(padding_mask, key, value)
    check_lengths(query, key, value, padding_mask, attention_mask)
    return padding_mask


def refuse_attention_mask(layer, attention_mask):
    """Raises `ValueError` if there is an attention mask, for layers without all scores."""
    if attention_mask is not None:
        raise InputError(
            f"{type(layer).__name__} supports only padding_mask and causal. Received: an "
            f"attention_mask of shape {tuple(attention_mask.shape)}. "
            "Use ScaledDotProductAttention."
        )


@keras.saving.register_keras_serializable("keras_transformer")
class ScaledDotProductAttention(TracedShape, Layer):
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(head_dim)) V for each head; no trained weights.

    Source: https://arxiv.org/abs/1706.03762, eq. 1. Costs T x S scores per head.

    Args:
        alibi: whether distant keys get lower scores, see `alibi_bias`; for self-attention without
            other positions.
        dropout: rate on the weights after the softmax, as in Tensor2Tensor and fairseq
            (attention_dropout); the paper has none.

    Attributes:
        gives_weights: whether the call can return its weights.

    Call arguments:
        query: `(B, T, H, K)`.
        key: `(B, S, H, K)`.
        value: `(B, S, H, K')`.
        padding_mask: bool `(B, S)`, True where a key is real; None: the mask that Keras attached to
            key and value.
        causal: whether a query sees only its own position and those before it.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = attend.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        `(B, T, H, K')`, or a pair with the weights `(B, H, T, S)`, before dropout. A query that may
        attend to nothing gives zeros.

    Raises:
        ValueError: a rate outside of [0, 1), other ranks, queries and keys of different widths, or
            masks of other lengths, if these are static.

    Example:
    >>> x = np.zeros((1, 5, 2, 4))
    >>> ScaledDotProductAttention()(x, x, x, causal=True).shape
    (1, 5, 2, 4)
    """

    gives_weights = True

    def __init__(self, alibi: bool = False, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alibi = alibi
        self.dropout = dropout
        self.weights_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        check_heads(query_shape, key_shape, value_shape)

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
        padding_mask = checked_padding_mask(query, key, value, padding_mask, attention_mask)
        mask = combined_mask(query, key, padding_mask, causal, attention_mask)
        num_queries, num_keys = ops.shape(query)[1], ops.shape(key)[1]
        query_positions = ops.arange(num_queries) + (num_keys - num_queries)
        bias = self.score_bias(query_positions, ops.arange(num_keys), query.shape[2])
        context, weights = scaled_dot_product_attention(
            query, key, value, mask, bias, self.dropout_of_weights(training)
        )
        return (context, weights) if return_attention_weights else context

    def dropout_of_weights(self, training: bool) -> Callable[[Tensor], Tensor] | None:
        """Returns the function that drops some of the weights, or None."""
        if not training or self.dropout == 0:
            return None
        return lambda weights: self.weights_dropout(weights, training=True)

    def score_bias(
        self, query_positions: Tensor, key_positions: Tensor, num_heads: int
    ) -> Tensor | None:
        """Returns the bias `(H, T, S)` of the scores for positions `(T,)` and `(S,)`, or None.

        A subclass can return another bias; the call and the decoding both add it.
        """
        if not self.alibi:
            return None
        return alibi_bias(query_positions[:, None] - key_positions[None], num_heads)

    def may_see(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Returns bool, which keys a query may see in decoding: its own and all before it."""
        return key_positions <= query_positions

    def start_cache(
        self, num_rows: int, max_length: int, num_heads: int, head_dim: int, value_dim: int
    ) -> Any:
        """Returns the empty cache: {"keys": `(R, H, L, K)`, "values": `(R, H, L, K')`}."""
        widths = {"keys": head_dim, "values": value_dim}
        return {
            name: backend.start_cache(num_rows, num_heads, max_length, width, self.compute_dtype)
            for name, width in widths.items()
        }

    def start_step(self, step: Tensor, cache: Any) -> Any:
        """Returns what `decode_step` needs to know of a step, the same for all layers of a decoder.

        Args:
            step: int scalar, counted from 0.
            cache: from `start_cache` or the previous step, of any of the layers.
        Returns:
            {"position": where the caches have this position, see `backend.cache_position`;
            "score_bias": `(L,)`, `(1, 1, L)` or `(H, 1, L)` float32, which is added to the scores}.
        """
        keys = cache["keys"]
        positions = ops.arange(ops.shape(keys)[2], dtype="int32")
        bias = self.score_bias(ops.reshape(step, (1,)), positions, keys.shape[1])
        # A position always sees itself, so a plain softmax is enough.
        # two Python numbers would have the dtype of floatx
        bias = ops.zeros((), "float32") if bias is None else bias
        bias = ops.where(self.may_see(step, positions), bias, MASKED_SCORE)
        return {"position": backend.cache_position(keys, step), "score_bias": bias}

    def decode_step(
        self, query: Tensor, key: Tensor, value: Tensor, step: Any, cache: Any
    ) -> tuple[Tensor, Any]:
        """Computes the next position of causal self-attention.

        Args:
            query, key, value: `(R, H, K)`, `(R, H, K)` and `(R, H, K')`, of this position.
            step: from `start_step`.
            cache: from `start_cache` or the previous step.
        Returns:
            `(context, cache)`: `(R, H, K')` and the cache with this position added.
        """
        num_heads, head_dim = query.shape[1:]
        caches = [cache["keys"], cache["values"]]
        keys, values = backend.cache_update(caches, step["position"], [key, value])
        query = ops.reshape(query * (1.0 / math.sqrt(head_dim)), (-1, num_heads, 1, head_dim))
        scores = ops.cast(ops.matmul(query, ops.transpose(keys, (0, 1, 3, 2))), "float32")
        weights = softmax(scores + step["score_bias"])
        context = ops.matmul(ops.cast(weights, values.dtype), values)  # (R, H, 1, K')
        context = ops.reshape(context, (-1, num_heads, values.shape[-1]))
        return context, {"keys": keys, "values": values}

    def start_memory(self, key: Tensor, value: Tensor, padding_mask: Tensor | None = None) -> Any:
        """Returns the keys, values and mask in the form that `attend_to_memory` reads.

        Args:
            key: `(B, S, H, K)`.
            value: `(B, S, H, K')`.
            padding_mask: bool `(B, S)`, True where a key is real.
        Returns:
            {"keys": `(B, H, K, S)`, divided by sqrt(K), "values": `(B, H, S, K')`} and, with a
            mask, "score_bias": `(B, 1, 1, S)`, which is added to the scores.
        """
        if padding_mask is not None:  # zeros, so that a sentence of padding alone gives zeros
            key, value = (ops.where(padding_mask[..., None, None], x, 0.0) for x in (key, value))
        key = key * (1.0 / math.sqrt(key.shape[-1]))  # once, instead of the queries of each step
        memory = {
            "keys": ops.transpose(key, (0, 2, 3, 1)),
            "values": ops.transpose(value, (0, 2, 1, 3)),
        }
        if padding_mask is not None:
            bias = ops.where(padding_mask, ops.zeros((), "float32"), MASKED_SCORE)
            memory["score_bias"] = bias[:, None, None]
        return memory

    def attend_to_memory(self, query: Tensor, memory: Any) -> Tensor:
        """Does what the call does: from queries `(B, N, H, K)` to the context `(B, N, H, K')`."""
        values = memory["values"]
        num_queries, num_heads, head_dim = query.shape[1:]
        if num_queries == 1:  # a reshape costs nothing, a transpose does
            query = ops.reshape(query, (-1, num_heads, 1, head_dim))
        else:
            query = ops.transpose(query, (0, 2, 1, 3))
        scores = ops.cast(ops.matmul(query, memory["keys"]), "float32")  # (B, H, N, S)
        if "score_bias" in memory:
            scores = scores + memory["score_bias"]
        weights = ops.cast(softmax(scores), values.dtype)
        context = ops.matmul(weights, values)  # (B, H, N, K')
        if num_queries == 1:
            return ops.reshape(context, (-1, 1, num_heads, values.shape[-1]))
        return ops.transpose(context, (0, 2, 1, 3))
