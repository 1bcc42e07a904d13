"""One block of the Transformer's decoder (Vaswani et al., 2017, section 3.1).

Shapes: B batch, T target length, S source length, D d_model, H heads, N hypotheses of each input
(in decoding).
"""

from typing import Any

import keras

from keras_transformer.errors import InputError
from keras_transformer.layers.attention.from_config import CROSS_ATTENTIONS
from keras_transformer.layers.attention.sparse import SparseAttention
from keras_transformer.layers.attention.ssru import Ssru
from keras_transformer.layers.base import config_of_shared
from keras_transformer.layers.decoding_step import minus_mean
from keras_transformer.layers.encoder_block import Block
from keras_transformer.layers.masks import known_padding_mask
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderBlock(Block):
    """Masked self-attention, cross-attention and feed-forward network, each within a `Residual`.

    Source: https://arxiv.org/abs/1706.03762, section 3.1. Without cross-attention, the attention to
    the source, it is the block of a language model (Radford et al., 2018).

    Padding comes after the last target token, where the causal mask hides it from every real
    position, so the target needs no padding mask. If Keras attached a mask to x, as
    `keras.layers.Embedding(mask_zero=True)` does, the block applies it, and padding may be
    anywhere.

    Args: those of `EncoderBlock`, whose attention may also be "ssru" or an `Ssru`, and
        cross_attention: what `attention` is, for the attention to the source: "dense", "linear" or
            "performer".
        has_cross_attention: False for a block without a source.

    Call arguments:
        x: `(B, T, D)`.
        encoder_output: `(B, S, D)`; None without cross-attention.
        source_padding_mask: bool `(B, S)`, True where a source position is real; None: the mask
            that Keras keeps with encoder_output.
        return_attention_weights: whether to return the weights too.
        log_weights_of: number of a head of the cross-attention, from 0, whose weights are returned
            too, as logarithms; not together with the other weights.
        training: whether dropout is applied.

    Returns:
        `(B, T, D)`, or a triple with the weights of the self-attention `(B, H, T, T)` and of the
        cross-attention `(B, H, T, S)`. The weights of linear attention, which has none, are [].
        With log_weights_of, a pair with float32 `(B, T, S)`.

    Raises:
        ValueError: an unknown attention, a cross_attention that needs distances; cross-attention
            without an encoder_output, or the other way round.

    Example:
    >>> DecoderBlock(num_heads=2, ff_dim=32)(np.zeros((1, 5, 8)), np.zeros((1, 7, 8))).shape
    (1, 5, 8)
    """

    def __init__(
        self,
        num_heads: int,
        ff_dim: int,
        dropout: float = 0.1,
        normalize_first: bool = False,
        activation: str = "relu",
        attention: keras.layers.Layer | str | dict[str, Any] | None = None,
        cross_attention: keras.layers.Layer | str | dict[str, Any] | None = None,
        rotary: bool = False,
        has_cross_attention: bool = True,
        layer_norm_epsilon: float = 1e-6,
        ff_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        arguments = num_heads, ff_dim, dropout, normalize_first, activation, attention, rotary
        super().__init__(*arguments, layer_norm_epsilon, ff_dropout, **kwargs)
        self.has_cross_attention = has_cross_attention
        self.cross_attention: Any = None
        self.cross_attention_residual: Any = None
        if has_cross_attention:
            self.cross_attention = self._new_attention("cross_attention", cross_attention)
            check_cross_attention(self.cross_attention, cross_attention)
            self.cross_attention_residual = self._new_residual("cross_attention")
        self._add_feed_forward()

    def build(self, x_shape: Shape, encoder_output_shape: Shape | None = None) -> None:
        self._check_source(encoder_output_shape)
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        if self.has_cross_attention:
            self.cross_attention.build(x_shape, encoder_output_shape)
            self.cross_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        return_attention_weights: bool = False,
        log_weights_of: int | None = None,
        training: bool = False,
    ) -> Tensor:
        self._check_source(encoder_output)
        options = dict(return_attention_weights=return_attention_weights, training=training)
        mask, cross_weights, log_weights = known_padding_mask(None, x), [], None
        x, self_weights = self._attend(
            self.self_attention,
            self.self_attention_residual,
            x,
            padding_mask=mask,
            causal=True,
            **options,
        )
        if self.has_cross_attention:
            mask = known_padding_mask(source_padding_mask, encoder_output)
            if log_weights_of is not None:
                query = self.cross_attention_residual.normalize_input(x)
                sides = query, encoder_output, mask
                log_weights = self.cross_attention.log_weights_of(log_weights_of, *sides)
            x, cross_weights = self._attend(
                self.cross_attention,
                self.cross_attention_residual,
                x,
                encoder_output,
                padding_mask=mask,
                **options,
            )
        x = self._feed_forward(x, training)
        if log_weights is not None:
            return x, log_weights
        return (x, self_weights, cross_weights) if return_attention_weights else x

    def _check_source(self, encoder_output):
        if (encoder_output is not None) != self.has_cross_attention:
            expected = "an" if self.has_cross_attention else "no"
            received = "none" if encoder_output is None else "one"
            raise InputError(
                f"Expected {expected} encoder_output with "
                f"has_cross_attention={self.has_cross_attention}. Received: {received}. "
                "Change one of them."
            )

    def decoding_weights(self) -> Any:
        """Returns the weights in the form that `decode_step` reads: nested dicts of tensors."""
        centered = self.normalize_first
        weights = {
            "self_attention": self.self_attention.decoding_weights(
                self.self_attention_residual.decoding_norm(), centered
            ),
            "feed_forward": self.feed_forward.decoding_weights(
                self.feed_forward_residual.decoding_norm(), centered
            ),
        }
        if self.has_cross_attention:
            weights["cross_attention"] = self.cross_attention.memory_weights(
                self.cross_attention_residual.decoding_norm(), centered
            )
        return weights

    def start_memory(
        self, encoder_output: Tensor | None = None, source_padding_mask: Tensor | None = None
    ) -> Any:
        """Returns what `decode_step` needs from the source: a dict of tensors `(B, ...)`."""
        self._check_source(encoder_output)
        if not self.has_cross_attention:
            return {}
        return self.cross_attention.start_memory(encoder_output, padding_mask=source_padding_mask)

    def ready_to_decode(self, x: Tensor) -> Tensor:
        """Returns `x` `(R, D)` as `decode_step` expects it: with pre-norm, minus its mean."""
        return minus_mean(x) if self.normalize_first else x

    def decode_step(
        self, x: Tensor, step: Any, cache: Any, memory: Any, num_hypotheses: int, weights: Any
    ) -> tuple[Tensor, Any]:
        """Computes the next position of `call` for N hypotheses of each input, without dropout.

        Args:
            x: `(B * N, D)`. With pre-norm the mean of each row is 0 (`ready_to_decode`), here and
                in the output, so that a normalization need not subtract it; no layer that reads x
                can see the difference.
            step: from `start_step` of the self-attention, the same for all blocks of a decoder.
            cache: from `start_cache` of the self-attention, for B * N rows, or the previous step.
            memory: from `start_memory`.
            num_hypotheses: N.
            weights: from `decoding_weights`.
        Returns:
            `(output, cache)`: `(B * N, D)` and the cache with this position added.
        """
        residual, of_sublayer = self.self_attention_residual, weights["self_attention"]
        inner, cache = self.self_attention.decode_step(
            residual.decoding_input(x), step, cache, of_sublayer
        )
        x = residual.decode_step(x, inner, of_sublayer["output"])
        if self.has_cross_attention:
            residual, of_sublayer = self.cross_attention_residual, weights["cross_attention"]
            inner = self.cross_attention.attend_to_memory(
                residual.decoding_input(x), memory, num_hypotheses, of_sublayer
            )
            x = residual.decode_step(x, inner, of_sublayer["output"])
        residual, of_sublayer = self.feed_forward_residual, weights["feed_forward"]
        inner = self.feed_forward.decode_step(residual.decoding_input(x), of_sublayer)
        return residual.decode_step(x, inner, of_sublayer["outer"]), cache

    def get_config(self) -> dict[str, Any]:
        attention = None
        if self.has_cross_attention:
            attention = config_of_shared(self.cross_attention.attention)
        return {**super().get_config(), "cross_attention": attention}


def check_cross_attention(layer, given):
    """Raises `InputError` for a layer that needs distances; `given` is the argument."""
    if isinstance(getattr(layer, "attention", layer), SparseAttention | Ssru):
        raise InputError(
            f"cross_attention must be one of {', '.join(CROSS_ATTENTIONS)}: a source token has "
            f"no distance from a target token. Received: cross_attention={given!r}."
        )
