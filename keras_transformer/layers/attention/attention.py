"""The general attention layer: any score, free widths, one query or many.

Shapes: B batch, T query length, S key length, D_q, D_k and D_v widths, U units.
"""

import keras
from keras import ops

from keras_transformer.layers.attention.additive import additive_scores
from keras_transformer.layers.attention.dot_product import (
    dot_product_scores,
    scaled_dot_product_scores,
)
from keras_transformer.layers.attention.masked_softmax import masked_softmax
from keras_transformer.layers.attention.multiplicative import multiplicative_scores
from keras_transformer.layers.masks import check_lengths, combined_mask, known_padding_mask
from keras_transformer.layers.unquantized import Unquantized

SCORES = ("dot_product", "scaled_dot_product", "multiplicative", "additive")


@keras.saving.register_keras_serializable("keras_transformer")
class Attention(Unquantized, keras.layers.Layer):
    """context = sum_s softmax_s(score(q, k_s)) v_s: a soft look-up of the query among the keys.

    Source: Bahdanau et al., 2015, eqs. 5 and 6, https://arxiv.org/abs/1409.0473, with the scores of
    Luong et al., 2015, eq. 8, https://arxiv.org/abs/1508.04025, and of Vaswani et al., 2017, eq. 1,
    https://arxiv.org/abs/1706.03762. With the query alone it is self-attention, with `causal`
    masked self-attention. There is one head and no projection but the score's own:
    `MultiHeadAttention` has both, and scaled dot products within. Costs T x S scores; "additive"
    and a network make T x S vectors of U or D_q + D_k numbers on the way.

    Args:
        score: the score function:
            - "dot_product": q · k, needs D_q = D_k;
            - "scaled_dot_product": q · k / sqrt(D_k), needs D_q = D_k;
            - "multiplicative": q W k;
            - "additive": u · tanh(W1 k + W2 q), without biases, as in the paper;
            - a layer of your own, a small network as `keras.Sequential([Dense(8, "tanh"),
              Dense(1)])`: called on each query beside each key, `(B, T, S, D_q + D_k)`, it gives
              `(B, T, S, 1)`.
        units: U of "additive"; None: D_q.

    Call arguments:
        query: `(B, T, D_q)`; or one query a sentence, `(B, D_q)`.
        key: `(B, S, D_k)`; None: self-attention, the keys are the queries.
        value: `(B, S, D_v)`; None: the values are the keys.
        padding_mask: bool `(B, S)`, True where a key is real; None: the mask that Keras keeps with
            key and value, as of `keras.layers.Embedding(mask_zero=True)`.
        causal: whether a query sees only its own position and those before it.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = attend.
        return_attention_weights: whether to return the weights too.

    Returns:
        `(B, T, D_v)`, or the pair of it and the weights `(B, T, S)`; of one query `(B, D_v)` and
        `(B, S)`. A query that may attend to nothing gives zeros. Scores and softmax in float32.

    Raises:
        ValueError: unknown score, units below 1 or without "additive", a dot product of different
            widths, other ranks, masks of other lengths, a network that gives more than one number.

    Example:
    >>> layer = Attention("additive")
    >>> query, memory = np.zeros((1, 4)), np.zeros((1, 7, 6))
    >>> layer(query, memory).shape
    (1, 6)
    """

    def __init__(self, score="scaled_dot_product", units=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        if not isinstance(score, keras.layers.Layer) and score not in SCORES:
            raise ValueError(
                f"score must be one of {SCORES}, or a layer. Received: score={score!r}."
            )
        if units is not None and (score != "additive" or not isinstance(units, int) or units < 1):
            raise ValueError(
                "units must be at least 1, and belongs to the score 'additive'. "
                f"Received: units={units}, score={score!r}."
            )
        self.score = score
        self.units = units

    def build(self, query_shape, key_shape=None, value_shape=None):
        if len(query_shape) not in (2, 3):
            raise ValueError(
                "query must have shape (B, T, D) or, for one query a sentence, (B, D). "
                f"Received: query.shape={tuple(query_shape)}."
            )
        if len(query_shape) == 2 and key_shape is None:
            raise ValueError(
                "One query a sentence needs keys to attend to. "
                f"Received: query.shape={tuple(query_shape)}, key=None."
            )
        query_dim, key_dim = query_shape[-1], (key_shape or query_shape)[-1]
        if self.score in ("dot_product", "scaled_dot_product") and query_dim != key_dim:
            raise ValueError(
                "A dot product needs queries and keys of one width. Received: "
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
        query,
        key=None,
        value=None,
        padding_mask=None,
        causal=False,
        attention_mask=None,
        return_attention_weights=False,
    ):
        is_one = len(query.shape) == 2
        query = query[:, None] if is_one else query
        key = query if key is None else key
        value = key if value is None else value
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if len(tensor.shape) != 3:
                raise ValueError(
                    "Expected a query (B, T, D_q) or (B, D_q), keys (B, S, D_k) and values "
                    f"(B, S, D_v). Received: {name}.shape={tuple(tensor.shape)}."
                )
        padding_mask = known_padding_mask(padding_mask, key, value)
        check_lengths(query, key, value, padding_mask, attention_mask)
        scores = ops.cast(self._scores(query, key), "float32")[:, None]  # as of one head
        mask = combined_mask(query, key, padding_mask, causal, attention_mask)
        weights = ops.cast(masked_softmax(scores, mask), value.dtype)[:, 0]
        context = ops.matmul(weights, value)
        if is_one:
            context, weights = context[:, 0], weights[:, 0]
        return (context, weights) if return_attention_weights else context

    def _scores(self, query, key):
        if self.score == "dot_product":
            return dot_product_scores(query, key)
        if self.score == "scaled_dot_product":
            return scaled_dot_product_scores(query, key)
        if self.score == "multiplicative":
            return multiplicative_scores(query, key, self.score_weight)
        if self.score == "additive":
            return additive_scores(
                query, key, self.query_weight, self.key_weight, self.score_weight
            )
        num_queries, num_keys = ops.shape(query)[1], ops.shape(key)[1]
        queries = ops.repeat(query[:, :, None], num_keys, axis=2)
        keys = ops.repeat(key[:, None], num_queries, axis=1)
        scores = self.score(ops.concatenate([queries, keys], axis=-1))
        if scores.shape[-1] != 1:
            raise ValueError(
                "Expected one score of a query and a key. Received: a network that gives "
                f"{scores.shape[-1]} numbers. Let it end in Dense(1)."
            )
        return scores[..., 0]

    def get_config(self):
        score = self.score
        if callable(score):
            score = keras.saving.serialize_keras_object(score)
        return {**super().get_config(), "score": score, "units": self.units}

    @classmethod
    def from_config(cls, config):
        if isinstance(config["score"], dict):
            config = {**config, "score": keras.saving.deserialize_keras_object(config["score"])}
        return cls(**config)
