"""One block of the Transformer's encoder (Vaswani et al., 2017, section 3.1).

Shapes: B batch, S source length, D d_model, H heads.
"""

from typing import Any

import keras

from keras_transformer.errors import InputError
from keras_transformer.layers.attention.from_config import attention_from_config
from keras_transformer.layers.attention.multi_head import MultiHeadAttention
from keras_transformer.layers.attention.ssru import Ssru
from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import known_padding_mask
from keras_transformer.layers.rematerialization import Rematerialized
from keras_transformer.layers.residual import Residual
from keras_transformer.types import Shape, Tensor


class Block(Rematerialized, TracedShape, Layer):
    """What the blocks of encoder and decoder have in common: all except the calls.

    Args: those of `EncoderBlock`.
    """

    def __init__(
        self,
        num_heads: int,
        ff_dim: int,
        dropout: float,
        normalize_first: bool,
        activation: str,
        attention: keras.layers.Layer | str | dict[str, Any] | None,
        rotary: bool,
        layer_norm_epsilon: float,
        ff_dropout: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = activation
        self.rotary = rotary
        self.layer_norm_epsilon = layer_norm_epsilon
        self.ff_dropout = ff_dropout
        self.self_attention = self._new_attention("self_attention", attention, rotary)
        self.self_attention_residual = self._new_residual("self_attention")

    def _new_attention(self, name, attention, rotary=False):
        if isinstance(attention, str | dict):
            options = dict(dtype=self.dtype_policy, name="attention")
            attention = attention_from_config(attention, **options)
        if isinstance(attention, Ssru):
            if rotary:
                raise InputError(
                    "Rotary positions turn queries and keys, which an SSRU does not have. "
                    "Received: rotary=True, attention='ssru'. Choose other positions."
                )
            return attention
        options = dict(rotary=rotary, dtype=self.dtype_policy, name=name)
        return MultiHeadAttention(self.num_heads, attention=attention, **options)

    def _new_residual(self, sublayer):
        arguments = self.dropout, self.normalize_first, self.layer_norm_epsilon
        return Residual(*arguments, dtype=self.dtype_policy, name=f"{sublayer}_residual")

    def _add_feed_forward(self):
        """Makes the last part, after those of the subclass: in this order weights are listed."""
        arguments = self.ff_dim, self.activation, self.ff_dropout
        self.feed_forward = FeedForward(*arguments, dtype=self.dtype_policy, name="feed_forward")
        self.feed_forward_residual = self._new_residual("feed_forward")

    def _attend(self, attention, residual, x, *source, return_attention_weights, training, **masks):
        """Returns `x` after an attention within its residual, and the weights; [] without them."""
        with_weights = return_attention_weights and attention.gives_weights
        result = attention(
            residual.normalize_input(x),
            *source,
            **masks,
            return_attention_weights=with_weights,
            training=training,
        )
        output, weights = result if with_weights else (result, [])
        return residual(x, output, training=training), weights

    def _feed_forward(self, x, training):
        """Returns `x` after the feed-forward network within its residual."""
        normalized = self.feed_forward_residual.normalize_input(x)
        output = self.feed_forward(normalized, training=training)
        return self.feed_forward_residual(x, output, training=training)

    @property
    def attention(self) -> keras.layers.Layer:
        """The layer that attends within each head; an `Ssru` has none."""
        layer = self.self_attention
        return layer if isinstance(layer, Ssru) else layer.attention


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderBlock(Block):
    """Self-attention and a feed-forward network, each within a `Residual`.

    Source: https://arxiv.org/abs/1706.03762, section 3.1.

    Args:
        num_heads: H.
        ff_dim: width of the feed-forward network's inner layer.
        dropout: rate on the output of each sublayer.
        normalize_first: True for pre-norm, False for post-norm as in the paper.
        activation: activation of the feed-forward network.
        attention: the layer that attends within each head, which blocks must not share; or a name
            such as "local", or a dict, see `MultiHeadAttention`. None: "dense".
        rotary: see `MultiHeadAttention`.
        layer_norm_epsilon: see `LayerNormalization`.
        ff_dropout: rate within the feed-forward network, see `FeedForward`.

    Call arguments:
        x: `(B, S, D)`.
        padding_mask: bool `(B, S)`, True where a position is real; None: the mask that Keras
            attached to x, as `keras.layers.Embedding(mask_zero=True)` does.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        `(B, S, D)`, or a pair with the weights `(B, H, S, S)`, which are [] for linear attention.

    Example:
    >>> EncoderBlock(num_heads=2, ff_dim=32)(np.zeros((1, 5, 8))).shape
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
        rotary: bool = False,
        layer_norm_epsilon: float = 1e-6,
        ff_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        arguments = num_heads, ff_dim, dropout, normalize_first, activation, attention, rotary
        super().__init__(*arguments, layer_norm_epsilon, ff_dropout, **kwargs)
        if isinstance(self.self_attention, Ssru):
            raise InputError(
                "Expected an attention that sees all positions in an encoder. Received: "
                "attention='ssru', which reads from the start. Use it in the decoder, as "
                "decoder_attention of a Transformer."
            )
        self._add_feed_forward()

    def build(self, input_shape: Shape) -> None:
        self.self_attention.build(input_shape)
        self.self_attention_residual.build(input_shape)
        self.feed_forward.build(input_shape)
        self.feed_forward_residual.build(input_shape)

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        x, weights = self._attend(
            self.self_attention,
            self.self_attention_residual,
            x,
            padding_mask=known_padding_mask(padding_mask, x),
            return_attention_weights=return_attention_weights,
            training=training,
        )
        x = self._feed_forward(x, training)
        return (x, weights) if return_attention_weights else x
