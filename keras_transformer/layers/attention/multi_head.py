"""Multi-head attention (Vaswani et al., 2017, section 3.2.2, https://arxiv.org/abs/1706.03762).

Shapes: B batch, T query length, S key length, D d_model, D_k and D_v widths of a key and a value,
H heads, K head_dim, K' value_dim; in decoding R rows, N hypotheses of each input.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.attention.from_config import attention_from_config
from keras_transformer.layers.attention.scores import MASKED_SCORE, scaled_dot_product_scores
from keras_transformer.layers.attention.ssru import Ssru
from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.layers.decoding_step import dense_weights, project_rows
from keras_transformer.layers.dense import Dense, HeadwiseDense
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.layers.masks import known_padding_mask
from keras_transformer.layers.positions import check_rotary_width, rotate
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(TracedShape, Layer):
    """Concat(head_1, ..., head_H) W^O, with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Source: https://arxiv.org/abs/1706.03762, section 3.2.2. The projections have biases, as in the
    paper's own code; the paper's formula has none (`use_bias=False`). Costs the projections, such
    as T D H K for the queries, and the cost of `attention` for each head.

    Args:
        num_heads: H.
        head_dim: K, width of a query, key and value of one head. None: the query's width / H.
        attention: what attends within each head: a layer on `(B, T, H, K)`, or as for `Transformer`
            a name such as "local", or a dict of a name and the layer's arguments. None: "dense".
        use_bias: whether the four projections have biases.
        value_dim: K', width of a value of one head. None: K.
        output_dim: width of the output. None: the query's.
        sliced: whether each head projects its own slice of the input, D / H wide (`HeadwiseDense`),
            with H times fewer weights. In the paper each head projects the whole input.
        rotary: whether queries and keys are rotated by their positions, see `rotate`; only for
            self-attention.

    Call arguments:
        query: `(B, T, D)`.
        key: `(B, S, D_k)`; None: self-attention, the keys are the queries.
        value: `(B, S, D_v)`; None: the values are the keys.
        padding_mask: bool `(B, S)`, True where a key is real; None: the mask that Keras attached to
            key and value, as `keras.layers.Embedding(mask_zero=True)` does.
        causal: masked self-attention: a query sees only its own position and those before it.
        attention_mask: bool `(T, S)` or `(B, T, S)`, True = attend.
        return_attention_weights: whether to return the weights too.
        training: whether `attention` applies its dropout.

    Returns:
        `(B, T, D)`, or a pair with the weights `(B, H, T, S)`.

    Raises:
        ValueError: sizes below 1; other ranks; a width that num_heads does not divide, if head_dim
            is None or with `sliced`; an odd head_dim or a key, with `rotary`.

    Example:
    >>> layer = MultiHeadAttention(num_heads=2)
    >>> layer(np.zeros((1, 5, 8)), causal=True).shape
    (1, 5, 8)
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int | None = None,
        attention: keras.layers.Layer | str | dict[str, Any] | None = None,
        use_bias: bool = True,
        value_dim: int | None = None,
        output_dim: int | None = None,
        sliced: bool = False,
        rotary: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_integers(
            ("head_dim", "value_dim", "output_dim"),
            num_heads=num_heads,
            head_dim=head_dim,
            value_dim=value_dim,
            output_dim=output_dim,
        )
        if not isinstance(attention, keras.layers.Layer):
            attention = attention_from_config(
                "dense" if attention is None else attention,
                dtype=self.dtype_policy,
                name="attention",
            )
        if isinstance(attention, Ssru):
            raise InputError(
                "Expected an attention within heads. Received: attention='ssru', which has none. "
                "Use the layer Ssru in the place of MultiHeadAttention."
            )
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.attention: Any = attention
        self.use_bias = use_bias
        self.value_dim = value_dim
        self.output_dim = output_dim
        self.sliced = sliced
        self.rotary = rotary

    @property
    def gives_weights(self) -> bool:
        """Whether the call can return its weights; `LinearAttention` has none."""
        return getattr(self.attention, "gives_weights", True)

    def build(
        self, query_shape: Shape, key_shape: Shape | None = None, value_shape: Shape | None = None
    ) -> None:
        key_shape = key_shape or query_shape
        value_shape = value_shape or key_shape
        _check_ranks(query_shape, key_shape, value_shape)
        d_model = query_shape[-1]
        if self.head_dim is None and d_model % self.num_heads:
            raise InputError(
                "d_model must be divisible by num_heads. "
                f"Received: d_model={d_model}, num_heads={self.num_heads}. "
                "Change one of them or give head_dim."
            )
        self.width_per_head = self.head_dim or d_model // self.num_heads
        self.value_width = self.value_dim or self.width_per_head
        if self.rotary:
            check_rotary_width(self.width_per_head)
        self.query_projection = self._input_projection(self.width_per_head, query_shape, "query")
        self.key_projection = self._input_projection(self.width_per_head, key_shape, "key")
        self.value_projection = self._input_projection(self.value_width, value_shape, "value")
        options = dict(use_bias=self.use_bias, dtype=self.dtype_policy, name="output")
        self.output_projection = Dense(self.output_dim or d_model, **options)
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.value_width))
        if not self.attention.built:
            heads = [(None, None, self.num_heads, self.width_per_head)] * 2
            self.attention.build(*heads, (None, None, self.num_heads, self.value_width))

    def _input_projection(self, width, input_shape, name):
        options = dict(use_bias=self.use_bias, dtype=self.dtype_policy, name=name)
        if self.sliced:
            projection = HeadwiseDense(self.num_heads, width, **options)
        else:
            projection = Dense(self.num_heads * width, **options)
        projection.build(input_shape)
        return projection

    def __call__(
        self, query: Tensor, key: Tensor | None = None, *arguments: Any, **options: Any
    ) -> Any:
        if key is query:  # Keras makes two tensors of it, and rotary positions need to know
            key = None
        return super().__call__(query, key, *arguments, **options)

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
        if self.rotary and key is not None:
            raise InputError(
                "Rotary positions are for self-attention, whose queries and keys share them. "
                "Received: a key that is not the query. Leave the key out, or rotary for a key "
                "from elsewhere."
            )
        key = query if key is None else key
        value = key if value is None else value
        _check_ranks(query.shape, key.shape, value.shape)
        padding_mask = known_padding_mask(padding_mask, key, value)
        queries = self._split_heads(self.query_projection(query), self.width_per_head)
        keys = self._split_heads(self.key_projection(key), self.width_per_head)
        if self.rotary:
            positions = ops.arange(ops.shape(query)[1])
            queries, keys = rotate(queries, positions), rotate(keys, positions)
        result = self.attention(  # Keras passes `training` on if the layer's call has it
            queries,
            keys,
            self._split_heads(self.value_projection(value), self.value_width),
            padding_mask=padding_mask,
            causal=causal,
            attention_mask=attention_mask,
            return_attention_weights=return_attention_weights,
        )
        context, weights = result if return_attention_weights else (result, None)
        batch, length, _, _ = ops.shape(context)
        context = ops.reshape(context, (batch, length, self.num_heads * self.value_width))
        output = self.output_projection(context)
        return (output, weights) if return_attention_weights else output

    def log_weights_of(
        self, head: int, query: Tensor, key: Tensor, padding_mask: Tensor | None = None
    ) -> Tensor:
        """Returns the logarithms `(B, T, S)` of the weights of one head, float32.

        The attention is dense.

        Args:
            head: number of the head, from 0.
            query, key, padding_mask: see the call.
        """
        queries = self._split_heads(self.query_projection(query), self.width_per_head)
        keys = self._split_heads(self.key_projection(key), self.width_per_head)
        scores = scaled_dot_product_scores(queries[:, :, head], keys[:, :, head])
        scores = ops.cast(scores, "float32")
        if padding_mask is not None:
            scores = ops.where(padding_mask[:, None], scores, MASKED_SCORE)
        return ops.log_softmax(scores)

    def decoding_weights(
        self, norm: LayerNormalization | None = None, centered: bool = False
    ) -> Any:
        """Returns the weights for `decode_step`, each from `dense_weights`.

        {"input": those of the three input projections side by side, "output": those of the output
        projection}.
        """
        inputs = (self.query_projection, self.key_projection, self.value_projection)
        return {"input": dense_weights(inputs, norm), "output": self._output_weights(centered)}

    def memory_weights(self, norm: LayerNormalization | None = None, centered: bool = False) -> Any:
        """Returns those for `attend_to_memory`, {"query", "output"}; see `decoding_weights`."""
        query = dense_weights([self.query_projection], norm)
        return {"query": query, "output": self._output_weights(centered)}

    def _output_weights(self, centered):
        return dense_weights([self.output_projection], centered=centered)

    def start_cache(self, num_rows: int, max_length: int) -> Any:
        """Returns the empty cache for `decode_step`, of R rows and `max_length` positions: a dict.

        The names and shapes of its tensors are those of `attention`.
        """
        return self.attention.start_cache(
            num_rows, max_length, self.num_heads, self.width_per_head, self.value_width
        )

    def start_step(self, step: Tensor, cache: Any) -> Any:
        """Returns what `decode_step` needs to know of a step, the same for all layers of a decoder.

        The step is counted from 0; the cache is that of any of the layers.
        """
        attention = self.attention.start_step(step, cache)
        return {"position": ops.reshape(step, (1,)), "attention": attention}

    def decode_step(self, x: Tensor, step: Any, cache: Any, weights: Any) -> tuple[Tensor, Any]:
        """Computes the next position of masked self-attention, up to the output projection.

        Args:
            x: `(R, D)`, one position of each hypothesis.
            step: from `start_step`.
            cache: from `start_cache` or the previous step.
            weights: from `decoding_weights`.
        Returns:
            `(context, cache)`: `(R, H * K')`, the input of the output projection, and the cache
            with this position added.
        """
        projected = project_rows(x, weights["input"])
        width = self.num_heads * self.width_per_head
        query, key, value = ops.split(projected, [width, 2 * width], axis=1)
        query, key = (
            ops.reshape(x, (-1, self.num_heads, self.width_per_head)) for x in (query, key)
        )
        value = ops.reshape(value, (-1, self.num_heads, self.value_width))
        if self.rotary:
            query, key = (rotate(x[:, None], step["position"])[:, 0] for x in (query, key))
        context, cache = self.attention.decode_step(query, key, value, step["attention"], cache)
        return ops.reshape(context, (-1, self.num_heads * self.value_width)), cache

    def start_memory(
        self, key: Tensor, value: Tensor | None = None, padding_mask: Tensor | None = None
    ) -> Any:
        """Returns the projected keys and values for `attend_to_memory`: a dict of `(B, ...)`."""
        value = key if value is None else value
        padding_mask = known_padding_mask(padding_mask, key, value)
        return self.attention.start_memory(
            self._split_heads(self.key_projection(key), self.width_per_head),
            self._split_heads(self.value_projection(value), self.value_width),
            padding_mask,
        )

    def attend_to_memory(self, x: Tensor, memory: Any, num_hypotheses: int, weights: Any) -> Tensor:
        """Attends with one position of N hypotheses of each input, up to the output projection.

        Args:
            x: `(B * N, D)`. The hypotheses of an input are queries of the same keys and values,
                which are in memory once.
            memory: from `start_memory`.
            num_hypotheses: N.
            weights: from `memory_weights`.
        Returns:
            `(B * N, H * K')`, the input of the output projection.
        """
        query = project_rows(x, weights["query"])
        query = ops.reshape(query, (-1, num_hypotheses, self.num_heads, self.width_per_head))
        context = self.attention.attend_to_memory(query, memory)
        return ops.reshape(context, (-1, self.num_heads * self.value_width))

    def _split_heads(self, x, width):
        batch, length, _ = ops.shape(x)  # not -1, which is ambiguous where T is 0
        return ops.reshape(x, (batch, length, self.num_heads, width))  # (B, T, H, K)


def _check_ranks(*shapes):
    if {len(shape) for shape in shapes} != {3}:
        raise InputError(
            "query, key and value must have shapes (B, T, D), (B, S, D_k) and (B, S, D_v). "
            f"Received: {', '.join(str(tuple(shape)) for shape in shapes)}. "
            "For a single query, T is 1."
        )
