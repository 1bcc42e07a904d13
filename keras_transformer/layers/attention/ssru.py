"""The SSRU: a recurrent unit in place of a decoder's self-attention (Kim et al., 2019).

Shapes: B batch, T length, D d_model; in decoding R rows.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError
from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.layers.decoding_step import dense_weights, project_rows
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.layers.masks import known_padding_mask
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class Ssru(TracedShape, Layer):
    """h_t = ReLU(c_t), c_t = f_t c_{t-1} + (1 - f_t) W x_t, f_t = sigmoid(W_f x_t + b_f).

    The "simpler simple recurrent unit" of Kim et al., 2019, section 3.2,
    https://aclanthology.org/D19-5632, as in Marian and Sockeye: the state c is a weighted sum of
    what was read, and the forget gate f depends on the input alone. So all positions of a sequence
    are computed at once (on JAX by an associative scan, elsewhere with a loop over the sums only),
    and a decoding step needs one vector of D numbers instead of the keys and values of all earlier
    positions. Costs 2 T D^2, a half of the projections of `MultiHeadAttention`, and no scores.

    It stands in the place of `MultiHeadAttention`, not within its heads, and reads from the start
    of the sequence, so it is for decoders.

    Call arguments:
        x: `(B, T, D)`.
        padding_mask: bool `(B, T)`, True where a position is real; the state passes over padding.
            None: the mask that Keras attached to x.
        causal: must be True.
        return_attention_weights: not supported.

    Returns:
        `(B, T, D)`. The state is float32.

    Raises:
        ValueError: causal is False, or a request for weights.

    Example:
    >>> Ssru()(np.zeros((1, 5, 8))).shape
    (1, 5, 8)
    """

    gives_weights = False

    def build(self, x_shape: Shape) -> None:
        options = dict(dtype=self.dtype_policy)
        self.forget_projection = Dense(x_shape[-1], name="forget", **options)
        self.candidate_projection = Dense(x_shape[-1], use_bias=False, name="candidate", **options)
        self.forget_projection.build(x_shape)
        self.candidate_projection.build(x_shape)

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        causal: bool = True,
        return_attention_weights: bool = False,
    ) -> Tensor:
        if not causal or return_attention_weights:
            raise InputError(
                "Ssru reads a sequence from its start, and has no attention weights. Received: "
                f"causal={causal}, return_attention_weights={return_attention_weights}. "
                "Use MultiHeadAttention."
            )
        padding_mask = known_padding_mask(padding_mask, x)
        forget, candidate = self.forget_projection(x), self.candidate_projection(x)
        forget, added = _gates(forget, candidate)
        if padding_mask is not None:
            real = ops.cast(padding_mask, "bool")[..., None]
            forget, added = ops.where(real, forget, 1.0), ops.where(real, added, 0.0)
        state = backend.linear_recurrence(forget, added)
        return ops.cast(ops.relu(state), self.compute_dtype)

    # === Step by step, as in `MultiHeadAttention` ===

    def decoding_weights(
        self, norm: LayerNormalization | None = None, centered: bool = False
    ) -> Any:
        """Returns the weights for `decode_step`: {"input": both projections, "output": none}."""
        projections = self.forget_projection, self.candidate_projection
        return {"input": dense_weights(projections, norm), "output": {}}

    def start_cache(self, num_rows: int, max_length: int) -> Any:
        """Returns the cache of R rows before the first step: {"state": `(R, D)` float32}."""
        width = self.forget_projection.units
        return {"state": ops.zeros((num_rows, width), dtype="float32")}

    def start_step(self, step: Tensor, cache: Any) -> Any:
        """Returns what `decode_step` needs to know of a step: nothing."""
        return {}

    def decode_step(self, x: Tensor, step: Any, cache: Any, weights: Any) -> tuple[Tensor, Any]:
        """Computes the next position of the call.

        Args:
            x: `(R, D)`, one position of each hypothesis.
            step: has no effect.
            cache: from `start_cache` or the previous step.
            weights: from `decoding_weights`.
        Returns:
            `(output, cache)`: `(R, D)`, and the cache with the new state.
        """
        forget, candidate = ops.split(project_rows(x, weights["input"]), 2, axis=1)
        forget, added = _gates(forget, candidate)
        state = forget * cache["state"] + added
        return ops.cast(ops.relu(state), self.compute_dtype), {"state": state}


def _gates(forget, candidate):
    """Returns f and (1 - f) W x in float32, from W_f x + b_f and W x."""
    forget = ops.sigmoid(ops.cast(forget, "float32"))
    return forget, (1.0 - forget) * ops.cast(candidate, "float32")
