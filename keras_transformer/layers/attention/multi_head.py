"""Multi-head attention (Vaswani et al., 2017, section 3.2.2, https://arxiv.org/abs/1706.03762).

Shapes: B batch, T query length, S key length, D d_model, H heads, K head_dim; in decoding N
hypotheses.
"""

import keras
from keras import ops

from keras_transformer.layers.attention.scaled_dot_product import ScaledDotProductAttention


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Concat(head_1, ..., head_H) W^O, with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Source: https://arxiv.org/abs/1706.03762, section 3.2.2. The projections have biases, as in
    the paper's own code; the paper's formula has none (`use_bias=False`).

    Args:
        num_heads: H.
        head_dim: K, width of a query, key and value of one head. None: the query's width / H.
        attention: the layer that attends within each head, on `(B, T, H, K)`; None:
            `ScaledDotProductAttention()`.
        use_bias: whether the four projections have biases.

    Call arguments:
        query: `(B, T, D)`.
        key: `(B, S, D_k)`; None: self-attention, the keys are the queries.
        value: `(B, S, D_v)`; None: the values are the keys.
        padding_mask: bool `(B, S)`, True where a key is real.
        causal: masked self-attention: a query sees only its own position and those before it.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = attend.
        return_attention_weights: whether to return the weights too.

    Returns:
        `(B, T, D)`, or the pair of it and the weights `(B, H, T, S)`.

    Raises:
        ValueError: sizes below 1, a width that the heads do not divide where head_dim is None.

    Example:
    >>> layer = MultiHeadAttention(num_heads=2)
    >>> layer(np.zeros((1, 5, 8)), causal=True).shape
    (1, 5, 8)
    """

    def __init__(self, num_heads, head_dim=None, attention=None, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        if num_heads < 1 or (head_dim is not None and head_dim < 1):
            raise ValueError(
                "num_heads and head_dim must be at least 1. "
                f"Received: num_heads={num_heads}, head_dim={head_dim}."
            )
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.attention = attention or ScaledDotProductAttention(dtype=self.dtype_policy)
        self.use_bias = use_bias

    def build(self, query_shape, key_shape=None, value_shape=None):
        key_shape = key_shape or query_shape
        value_shape = value_shape or key_shape
        d_model = query_shape[-1]
        if self.head_dim is None and d_model % self.num_heads:
            raise ValueError(
                "d_model must be divisible by num_heads. "
                f"Received: d_model={d_model}, num_heads={self.num_heads}. "
                "Change one of them or give head_dim."
            )
        self.width_per_head = self.head_dim or d_model // self.num_heads
        width = self.num_heads * self.width_per_head
        self.query_projection = self._projection(width, query_shape, "query")
        self.key_projection = self._projection(width, key_shape, "key")
        self.value_projection = self._projection(width, value_shape, "value")
        self.output_projection = self._projection(d_model, (*query_shape[:-1], width), "output")

    def _projection(self, width, input_shape, name):
        dense = keras.layers.Dense(
            width, use_bias=self.use_bias, dtype=self.dtype_policy, name=name
        )
        dense.build(input_shape)
        return dense

    def call(
        self,
        query,
        key=None,
        value=None,
        padding_mask=None,
        causal=False,
        attention_mask=None,
        return_attention_weights=False,
    ):
        key = query if key is None else key
        memory = self.project_memory(key, key if value is None else value)
        return self.attend(
            query, memory, padding_mask, causal, attention_mask, return_attention_weights
        )

    def project_memory(self, key, value):
        """Returns the heads' keys and values, two `(B, S, H, K)`, for `attend`."""
        keys = self._split_heads(self.key_projection(key))
        return keys, self._split_heads(self.value_projection(value))

    def attend(
        self,
        query,
        memory,
        padding_mask=None,
        causal=False,
        attention_mask=None,
        return_attention_weights=False,
    ):
        """As the call, with keys and values that `project_memory` made once for many queries."""
        result = self.attention(
            self._split_heads(self.query_projection(query)),
            *memory,
            padding_mask=padding_mask,
            causal=causal,
            attention_mask=attention_mask,
            return_attention_weights=return_attention_weights,
        )
        context, weights = result if return_attention_weights else (result, None)
        output = self.output_projection(self._join_heads(context))
        return (output, weights) if return_attention_weights else output

    def start_cache(self, num_rows, max_length):
        """Returns the attention's empty decoding state: tensors `(time or 1, num_rows, ...)`."""
        width = self.width_per_head
        return self.attention.start_cache(num_rows, max_length, self.num_heads, width, width)

    def decode_step(self, x, step, cache):
        """Masked self-attention of one more position: equal to that position of a whole pass.

        Args:
            x: `(B, N, D)`, one position of each of N hypotheses of a sentence.
            step: int scalar, counted from 0.
            cache: what `start_cache` or the previous step returned, over `B * N` rows.
        Returns:
            `(output, cache)`, `(B, N, D)` and the cache with this position added.
        """
        heads = (-1, self.num_heads, self.width_per_head)  # (B * N, H, K)
        query = ops.reshape(self.query_projection(x), heads)
        key = ops.reshape(self.key_projection(x), heads)
        value = ops.reshape(self.value_projection(x), heads)
        context, cache = self.attention.decode_step(query, key, value, step, cache)
        width = self.num_heads * self.width_per_head
        context = ops.reshape(context, (-1, ops.shape(x)[1], width))
        return self.output_projection(context), cache

    def _split_heads(self, x):
        shape = (-1, ops.shape(x)[1], self.num_heads, self.width_per_head)
        return ops.reshape(x, shape)  # (B, T, H, K)

    def _join_heads(self, x):
        return ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads * self.width_per_head))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "attention": keras.saving.serialize_keras_object(self.attention),
            "use_bias": self.use_bias,
        }

    @classmethod
    def from_config(cls, config):
        attention = keras.saving.deserialize_keras_object(config["attention"])
        return cls(**{**config, "attention": attention})
