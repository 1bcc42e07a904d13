"""What the encoder and the decoder of a Transformer have in common.

Shapes: B batch, T length, D d_model, H heads.
"""

from typing import Any

import keras

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.attention.from_config import attention_from_config
from keras_transformer.layers.attention.scaled_dot_product import ScaledDotProductAttention
from keras_transformer.layers.base import Layer, TracedShape, build_embedding
from keras_transformer.layers.dropout import Dropout, WordDropout, check_rates
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.layers.positions import LearnedPositions, SinusoidalPositions
from keras_transformer.types import Shape, Tensor

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", None)


class Stack(TracedShape, Layer):
    """Embedding, positions, dropout, blocks and, with pre-norm, a final layer normalization.

    A subclass makes `self.blocks` and calls them between `embed` and `finish`.

    Args:
        embedding: layer from the inputs to vectors `(B, T, D)`; two stacks may share it.
        num_layers: number of blocks.
        num_heads: H, which must divide D.
        ff_dim: width of the feed-forward networks' inner layer.
        dropout: rate on the embeddings and on each sublayer's output.
        normalize_first: True for pre-norm, False for post-norm.
        activation: activation of the feed-forward networks.
        positions: "sinusoidal" or "learned", which are added to the embeddings; or "rotary" or
            "alibi", which are applied within each self-attention; or None, where the embedding adds
            positions itself or the model has none.
        position_layout, position_base: of sinusoidal positions, see `SinusoidalPositions`.
        max_length: number of learned positions; the others have no limit.
        attention: the self-attention: a name in `layers.attention.from_config.ATTENTIONS`, or a
            dict of a name and arguments, such as {"name": "local", "window": 8}.
        layer_norm_epsilon: see `LayerNormalization`.
        attention_dropout: rate on the attention weights; linear attention has none.
        ff_dropout: rate within the feed-forward networks, see `FeedForward`.
        word_dropout: rate of whole tokens, before positions are added, see `WordDropout`.
    """

    def __init__(
        self,
        embedding: keras.layers.Layer,
        num_layers: int,
        num_heads: int,
        ff_dim: int,
        dropout: float = 0.1,
        normalize_first: bool = False,
        activation: str = "relu",
        positions: str | None = "sinusoidal",
        position_layout: str = "interleaved",
        position_base: float = 10000.0,
        max_length: int = 1024,
        attention: str | dict[str, Any] = "dense",
        layer_norm_epsilon: float = 1e-6,
        attention_dropout: float = 0.0,
        ff_dropout: float = 0.0,
        word_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that come as floats to bfloat16
        check_positive_integers(num_layers=num_layers)
        if positions not in POSITIONS:
            raise InputError(f"positions must be one of {POSITIONS}. Received: {positions=}.")
        check_rates(
            dropout=dropout,
            attention_dropout=attention_dropout,
            ff_dropout=ff_dropout,
            word_dropout=word_dropout,
        )
        self.embedding = embedding
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = activation
        self.positions = positions
        self.position_layout = position_layout
        self.position_base = position_base
        self.max_length = max_length
        self.attention = attention
        self.layer_norm_epsilon = layer_norm_epsilon
        self.attention_dropout = attention_dropout
        self.ff_dropout = ff_dropout
        self.word_dropout = word_dropout
        self.token_dropout = WordDropout(word_dropout, dtype=self.dtype_policy)
        self.position_layer = self._position_layer()
        self.embedding_dropout = Dropout(dropout, dtype=self.dtype_policy)
        self.norm = None
        if normalize_first:
            self.norm = LayerNormalization(layer_norm_epsilon, dtype=self.dtype_policy, name="norm")

    def block_arguments(self) -> dict[str, Any]:
        """Returns the arguments that the blocks of both take, with a new attention layer."""
        return dict(
            num_heads=self.num_heads,
            ff_dim=self.ff_dim,
            dropout=self.dropout,
            normalize_first=self.normalize_first,
            activation=self.activation,
            attention=self._self_attention(),
            rotary=self.positions == "rotary",
            layer_norm_epsilon=self.layer_norm_epsilon,
            ff_dropout=self.ff_dropout,
            dtype=self.dtype_policy,
        )

    def _position_layer(self):
        if self.positions == "learned":
            return LearnedPositions(self.max_length, dtype=self.dtype_policy, name="positions")
        if self.positions == "sinusoidal":
            return SinusoidalPositions(
                self.position_layout, self.position_base, dtype=self.dtype_policy, name="positions"
            )
        return None  # the self-attention or the embedding applies the positions, or nothing does

    def new_attention(self, attention: str | dict[str, Any]) -> keras.layers.Layer:
        """Returns a new layer that attends within heads, from its name or a dict."""
        return attention_from_config(
            attention, self.attention_dropout, dtype=self.dtype_policy, name="attention"
        )

    def _self_attention(self):
        layer = self.new_attention(self.attention)
        if self.positions == "alibi":
            if not isinstance(layer, ScaledDotProductAttention):
                raise InputError(
                    "ALiBi adds to scores, which this attention does not have. Received: "
                    f"positions='alibi', attention={self.attention!r}. Choose other positions."
                )
            layer.alibi = True
        return layer

    def build_around_blocks(self, input_shape: Shape) -> Shape:
        """Builds everything except the blocks; returns their input shape, `(None, None, D)`."""
        hidden_shape = (None, None, build_embedding(self.embedding, input_shape))
        for layer in (self.position_layer, self.norm):
            if layer is not None:
                layer.build(hidden_shape)
        return hidden_shape

    def embed(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Returns `(B, T, D)`, the embeddings of the inputs and their positions, with dropout."""
        x = self.token_dropout(self.embedding(inputs), training=training)
        if self.position_layer is not None:
            x = self.position_layer(x)
        return self.embedding_dropout(x, training=training)

    def finish(self, x: Tensor) -> Tensor:
        """Returns the output of the stack from the output `x` of its last block."""
        return x if self.norm is None else self.norm(x)


def check_num_heads(d_model, num_heads):
    """Raises `InputError` unless the heads share the width equally."""
    check_positive_integers(d_model=d_model, num_heads=num_heads)
    if d_model % num_heads:
        raise InputError(
            "d_model must be divisible by num_heads. "
            f"Received: d_model={d_model}, num_heads={num_heads}. Change one of them."
        )
