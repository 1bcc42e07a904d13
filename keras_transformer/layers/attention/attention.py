"""The general attention layer: any score function, any widths, one query or many.

Shapes: B batch, T query length, S key length, D_q, D_k and D_v widths of a query, a key and a
value, U units.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError
from keras_transformer.layers.attention.scores import (
    dot_product_scores,
    masked_softmax,
    multiplicative_scores,
    project,
    projected_additive_scores,
    scaled_dot_product_scores,
)
from keras_transformer.layers.base import Layer, NotQuantized, TracedShape
from keras_transformer.layers.dropout import check_rates
from keras_transformer.layers.masks import check_lengths, combined_mask, known_padding_mask
from keras_transformer.types import Shape, Tensor

SCORES = ("dot_product", "scaled_dot_product", "multiplicative", "additive")


@keras.saving.register_keras_serializable("keras_transformer")
class Attention(NotQuantized, TracedShape, Layer):
    """context = sum_s softmax_s(score(q, k_s)) v_s: a soft look-up of the query among the keys.

    Source: Bahdanau et al., 2015, eqs. 5 and 6, https://arxiv.org/abs/1409.0473, with the scores of
    Luong et al., 2015, eq. 8, https://arxiv.org/abs/1508.04025, and of Vaswani et al., 2017, eq. 1,
    https://arxiv.org/abs/1706.03762. With a query only, it is self-attention; with `causal` too, it
    is masked self-attention. There is one head, and no projection except those of the score
    function; for heads and projections see `MultiHeadAttention`. Costs T x S scores; "additive" and
    a network compute T x S vectors of U or D_q + D_k numbers on the way.

    Args:
        score: the score function:
            - "dot_product": q · k, needs D_q = D_k;
            - "scaled_dot_product": q · k / sqrt(D_k), needs D_q = D_k;
            - "multiplicative": q W k;
            - "additive": u · tanh(W1 k + W2 q), without biases, as in the paper;
            - a layer of your own, such as `keras.Sequential([Dense(8, "tanh"), Dense(1)])`: from
              each query concatenated with each key, `(B, T, S, D_q + D_k)`, to `(B, T, S, 1)`.
        units: U, for "additive"; None: D_q.
        dropout: rate on the weights, after the softmax. `attend_to_memory` has no dropout.

    Call arguments:
        query: `(B, T, D_q)`; or one query per sentence, `(B, D_q)`.
        key: `(B, S, D_k)`; None: self-attention, the keys are the queries.
        value: `(B, S, D_v)`; None: the values are the keys.
        padding_mask: bool `(B, S)`, True where a key is real; None: the mask that Keras attached to
            key and value, as `keras.layers.Embedding(mask_zero=True)` does.
        causal: whether a query sees only its own position and those before it.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = attend.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        `(B, T, D_v)`, or a pair with the weights `(B, T, S)`, before dropout; for one query per
        sentence, `(B, D_v)` and `(B, S)`. A query that may attend to nothing gives zeros. The
        softmax is computed in float32.

    Raises:
        ValueError: unknown score, units below 1 or without "additive", a dot product of different
            widths, other ranks, masks of other lengths, or a network with more than one output.

    Example:
    >>> layer = Attention("additive")
    >>> query, memory = np.zeros((1, 4)), np.zeros((1, 7, 6))
    >>> layer(query, memory).shape
    (1, 6)
    """

    def __init__(
        self,
        score: str | keras.layers.Layer = "scaled_dot_product",
        units: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(score, keras.layers.Layer) and score not in SCORES:
            raise InputError(
                f"score must be one of {SCORES}, or a layer. Received: score={score!r}."
            )
        if units is not None and (score != "additive" or not isinstance(units, int) or units < 1):
            raise InputError(
                "units must be at least 1, and belongs to the score 'additive'. "
                f"Received: units={units}, score={score!r}."
            )
        self.score = score
        self.units = units
        check_rates(dropout=dropout)
        self.dropout = dropout
        if dropout > 0:  # not a `Dropout`: Keras would quantize a layer with sublayers in silence
            self.seed_generator = keras.random.SeedGenerator()

    def build(
        self, query_shape: Shape, key_shape: Shape | None = None, value_shape: Shape | None = None
    ) -> None:
        if len(query_shape) not in (2, 3):
            raise InputError(
                "query must have shape (B, T, D) or, for one query per sentence, (B, D). "
                f"Received: query.shape={tuple(query_shape)}."
            )
        if len(query_shape) == 2 and key_shape is None:
            raise InputError(
                "One query per sentence needs keys to attend to. "
                f"Received: query.shape={tuple(query_shape)}, key=None."
            )
        query_dim, key_dim = query_shape[-1], (key_shape or query_shape)[-1]
        if self.score in ("dot_product", "scaled_dot_product") and query_dim != key_dim:
            raise InputError(
                "A dot product needs queries and keys of the same width. Received: "
                f"query width {query_dim}, key width {key_dim}. Use score='multiplicative'."
            )
        if self.score == "multiplicative":
            self.score_weight = self.add_weight(name="score", shape=(query_dim, key_dim))
        elif self.score == "additive":
            units = self.units or query_dim
            self.query_weight = self.add_weight(name="query", shape=(query_dim, units))
            self.key_weight = self.add_weight(name="key", shape=(key_dim, units))
            self.score_weight = self.add_weight(
                name="score",
                shape=(units,),
                initializer=keras.initializers.RandomNormal(stddev=0.1),
            )
        elif callable(self.score) and not self.score.built:
            self.score.build((None, None, None, query_dim + key_dim))

    def call(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        padding_mask: Tensor | None = None,
        causal: bool = False,
        attention_mask: Tensor | None = None,
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        is_one = len(query.shape) == 2
        query = query[:, None] if is_one else query
        key = query if key is None else key
        value = key if value is None else value
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if len(tensor.shape) != 3:
                raise InputError(
                    "Expected a query (B, T, D_q) or (B, D_q), keys (B, S, D_k) and values "
                    f"(B, S, D_v). Received: {name}.shape={tuple(tensor.shape)}."
                )
        padding_mask = known_padding_mask(padding_mask, key, value)
        check_lengths(query, key, value, padding_mask, attention_mask)
        mask = combined_mask(query, key, padding_mask, causal, attention_mask)
        projected = self._project_keys(key)
        context, weights = self._attend(query, projected, value, mask, training)
        if is_one:
            context, weights = context[:, 0], weights[:, 0]
        return (context, weights) if return_attention_weights else context

    # === Many queries, one after the other, to the same keys ===

    def start_memory(
        self, key: Tensor, value: Tensor | None = None, padding_mask: Tensor | None = None
    ) -> Any:
        """Returns keys, values and mask in the form that `attend_to_memory` reads, a dict.

        Additive scores project the keys here, once for all queries.

        Args:
            key, value, padding_mask: see the call; `(B, S, D_k)`, `(B, S, D_v)` and `(B, S)`.
        """
        memory = {"keys": self._project_keys(key), "values": key if value is None else value}
        if padding_mask is not None:
            memory["mask"] = ops.cast(padding_mask, "bool")
        return memory

    def attend_to_memory(self, query: Tensor, memory: Any) -> tuple[Tensor, Tensor]:
        """Does what the call does for queries `(B, T, D_q)`; returns the context and the weights.

        The layer must be built.
        """
        mask = memory["mask"][:, None, None] if "mask" in memory else None
        return self._attend(query, memory["keys"], memory["values"], mask)

    def _attend(self, query, projected_key, value, mask, training=False):
        scores = ops.cast(self._scores(query, projected_key), "float32")[:, None]  # (B, 1, T, S)
        weights = ops.cast(masked_softmax(scores, mask), value.dtype)[:, 0]
        kept = weights
        if training and self.dropout > 0:
            kept = backend.dropout(weights, self.dropout, self.seed_generator)
        return ops.matmul(kept, value), weights

    def _project_keys(self, key):
        return project(key, self._cast(self.key_weight)) if self.score == "additive" else key

    def _cast(self, weight):  # which Keras does in a call alone
        return ops.cast(weight, self.compute_dtype)

    def _scores(self, query, key):
        if self.score == "dot_product":
            return dot_product_scores(query, key)
        if self.score == "scaled_dot_product":
            return scaled_dot_product_scores(query, key)
        if self.score == "multiplicative":
            return multiplicative_scores(query, key, self._cast(self.score_weight))
        if self.score == "additive":
            query = project(query, self._cast(self.query_weight))
            return projected_additive_scores(query, key, self._cast(self.score_weight))
        num_queries, num_keys = ops.shape(query)[1], ops.shape(key)[1]
        queries = ops.repeat(query[:, :, None], num_keys, axis=2)
        keys = ops.repeat(key[:, None], num_queries, axis=1)
        scores = self.score(ops.concatenate([queries, keys], axis=-1))
        if scores.shape[-1] != 1:
            raise InputError(
                "Expected one score for each query and key. Received: a network that gives "
                f"{scores.shape[-1]} numbers. Let it end in Dense(1)."
            )
        return scores[..., 0]
