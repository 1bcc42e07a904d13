"""Linear attention: sums that all queries share replace scores (Katharopoulos et al., 2020).

Shapes: B batch, T query length, S key length, H heads, K head_dim, K' value_dim, M features, N
chunks, C positions per chunk; in decoding R rows and N hypotheses of each input.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.attention.blocks import at_most, from_blocks, in_blocks
from keras_transformer.layers.attention.feature_maps import EluFeatures
from keras_transformer.layers.attention.scaled_dot_product import (
    checked_padding_mask,
    refuse_attention_mask,
)
from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class LinearAttention(TracedShape, Layer):
    """context = phi(q) · (sum_s phi(k_s) v_s) / phi(q) · (sum_s phi(k_s)).

    Source: https://arxiv.org/abs/2006.16236, eqs. 4 to 6 and, if causal, 8 to 11. With
    `PositiveRandomFeatures` it is the Performer (https://arxiv.org/abs/2009.14794). Costs
    (T + S) M K' per head: no array of T x S exists, causal or not, so there are no weights to
    return. The causal sums are prefix sums over chunks, with C x C scores within a chunk. A
    decoding step costs the same at every position.

    Args:
        feature_map: phi, a layer from `(B, T, H, K)` to `(B, T, H, M)` with values above 0; None:
            `EluFeatures()`.
        chunk_size: maximum of C; a shorter input is a single chunk.

    Call arguments:
        query: `(B, T, H, K)`.
        key: `(B, S, H, K)`.
        value: `(B, S, H, K')`.
        padding_mask: bool `(B, S)`, True where a key is real; None: the mask that Keras attached to
            key and value.
        causal: whether a query sees only its own position and those before it; then S = T.
        attention_mask, return_attention_weights: not supported.

    Returns:
        `(B, T, H, K')`, computed in float32. A row that may attend to nothing gives zeros.

    Raises:
        ValueError: chunk_size below 1, an attention_mask, a request for weights, other ranks, or
            queries and keys of different widths.

    Example:
    >>> x = np.zeros((1, 9, 2, 4))
    >>> LinearAttention()(x, x, x, causal=True).shape
    (1, 9, 2, 4)
    """

    gives_weights = False

    def __init__(
        self, feature_map: keras.layers.Layer | None = None, chunk_size: int = 64, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive_integers(chunk_size=chunk_size)
        if not isinstance(feature_map, keras.layers.Layer | None):
            raise InputError(
                "feature_map must be a layer, such as EluFeatures(). "
                f"Received: feature_map={feature_map!r}."
            )
        self.feature_map = feature_map or EluFeatures(dtype=self.dtype_policy)
        self.chunk_size = chunk_size

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        if not self.feature_map.built:
            self.feature_map.build(query_shape)

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Tensor | None = None,
        causal: bool = False,
        attention_mask: Tensor | None = None,
        return_attention_weights: bool = False,
    ) -> Tensor:
        refuse_attention_mask(self, attention_mask)
        if return_attention_weights:
            raise InputError(
                "LinearAttention does not compute attention weights. "
                "Received: return_attention_weights=True. Use ScaledDotProductAttention."
            )
        padding_mask = checked_padding_mask(query, key, value, padding_mask)
        lengths = query.shape[1], key.shape[1]
        if causal and None not in lengths and lengths[0] != lengths[1]:
            raise InputError(
                "Causal LinearAttention is self-attention. "
                f"Received: {lengths[0]} queries, {lengths[1]} keys. Leave causal out."
            )
        query, key, value = self._features(query, key, value, padding_mask)
        if causal:
            sums = self._causal_sums(query, key, value)
        else:
            sums = ops.einsum("bthm,bhmv->bthv", query, ops.einsum("bshm,bshv->bhmv", key, value))
        return self._divided(sums)

    def _features(self, query, key, value, padding_mask=None):
        """Returns the features of queries and keys, and values followed by a 1, all float32.

        The 1 makes the divisor the last entry of the sums. The keys and values of padding are 0.
        """
        query, key = self.feature_map(query), self.feature_map(key)
        value = ops.cast(value, "float32")
        value = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)
        if padding_mask is not None:
            real = ops.cast(padding_mask, "bool")[..., None, None]
            key, value = ops.where(real, key, 0.0), ops.where(real, value, 0.0)
        return query, key, value

    def _causal_sums(self, query, key, value):
        length = ops.shape(query)[1]
        chunk_size = at_most(self.chunk_size, length)
        query, key, value = (in_blocks(x, chunk_size) for x in (query, key, value))
        chunk_sums = ops.einsum("bnshm,bnshv->bnhmv", key, value)
        before = ops.cumsum(chunk_sums[:, :-1], axis=1)  # the sums of all earlier chunks
        before = ops.concatenate([ops.zeros_like(chunk_sums[:, :1]), before], axis=1)
        positions = ops.arange(chunk_size)
        scores = ops.einsum("bnthm,bnshm->bnhts", query, key)
        scores = ops.where(positions[:, None] >= positions, scores, 0.0)
        sums = ops.einsum("bnhts,bnshv->bnthv", scores, value)
        sums = sums + ops.einsum("bnthm,bnhmv->bnthv", query, before)
        return from_blocks(sums, length)

    def _divided(self, sums):
        context, divisor = sums[..., :-1], sums[..., -1:]
        context = context / ops.where(divisor > 0, divisor, 1.0)
        return ops.cast(context, self.compute_dtype)

    def start_cache(
        self, num_rows: int, max_length: int, num_heads: int, head_dim: int, value_dim: int
    ) -> Any:
        """Returns the empty cache of step-by-step decoding: {"sums": `(R, H, 1, M, K' + 1)`}."""
        num_features = self.feature_map.compute_output_shape((None, 1, num_heads, head_dim))[-1]
        shape = num_rows, num_heads, 1, num_features, value_dim + 1
        return {"sums": ops.zeros(shape, dtype="float32")}

    def start_step(self, step: Tensor, cache: Any) -> Any:
        """Returns what `decode_step` needs to know of a step: nothing."""
        return {}

    def decode_step(
        self, query: Tensor, key: Tensor, value: Tensor, step: Any, cache: Any
    ) -> tuple[Tensor, Any]:
        """Does what that of `ScaledDotProductAttention` does; `step` has no effect."""
        query, key, value = self._features(*(x[:, None] for x in (query, key, value)))
        total = cache["sums"] + ops.einsum("rshm,rshv->rhmv", key, value)[:, :, None]
        sums = ops.einsum("rshm,rhsmv->rhv", query, total)
        return self._divided(sums), {"sums": total}

    def start_memory(self, key: Tensor, value: Tensor, padding_mask: Tensor | None = None) -> Any:
        """Returns {"sums": `(B, H, M, K' + 1)`}, the sums over the keys."""
        _, key, value = self._features(key, key, value, padding_mask)
        return {"sums": ops.einsum("bshm,bshv->bhmv", key, value)}

    def attend_to_memory(self, query: Tensor, memory: Any) -> Tensor:
        """Does what the call does: from queries `(B, N, H, K)` to the context `(B, N, H, K')`."""
        query = self.feature_map(query)
        return self._divided(ops.einsum("bnhm,bhmv->bnhv", query, memory["sums"]))
