"""One block of the Transformer's decoder (Vaswani et al., 2017, section 3.1).

Shapes: B batch, T target length, S source length, D d_model, H heads; in decoding N hypotheses.
"""

import keras
from keras import ops

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.masks import known_padding_mask
from keras_transformer.layers.residual import Residual


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderBlock(keras.layers.Layer):
    """Masked self-attention, attention to the source, feed-forward, each within a `Residual`.

    Source: https://arxiv.org/abs/1706.03762, section 3.1. Padding stands after the target's last
    piece, where the causal mask hides it from every real position: the target needs no padding
    mask. Where Keras keeps one with x, as of `keras.layers.Embedding(mask_zero=True)`, it is
    honoured, and padding may stand anywhere.

    Args:
        num_heads: H.
        ff_dim: width of the feed-forward network's inner layer.
        dropout: rate on the output of each sublayer.
        normalize_first: True for pre-norm, False for post-norm, the paper's.
        activation: of the feed-forward network.
        attention: the layer that attends within each head of the self-attention, one of this
            block's own; None: dense.
        cross_attention: the same for the attention to the source.
        rotary: as of `MultiHeadAttention`, for the self-attention.

    Call arguments:
        x: `(B, T, D)`.
        encoder_output: `(B, S, D)`.
        source_padding_mask: bool `(B, S)`, True where a source position is real; None: the mask
            that Keras keeps with encoder_output.
        return_attention_weights: whether to return the weights too.
        training: whether dropout acts.

    Returns:
        `(B, T, D)`, or a triple with the weights of the self-attention `(B, H, T, T)` and of the
        cross-attention `(B, H, T, S)`, None of linear attention.

    Example:
    >>> DecoderBlock(num_heads=2, ff_dim=32)(np.zeros((1, 5, 8)), np.zeros((1, 7, 8))).shape
    (1, 5, 8)
    """

    def __init__(
        self,
        num_heads,
        ff_dim,
        dropout=0.1,
        normalize_first=False,
        activation="relu",
        attention=None,
        cross_attention=None,
        rotary=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = num_heads
        self.ff_dim = ff_dim
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = activation
        self.rotary = rotary
        policy = self.dtype_policy
        residual = dict(dropout=dropout, normalize_first=normalize_first, dtype=policy)
        self.self_attention = MultiHeadAttention(
            num_heads, attention=attention, rotary=rotary, dtype=policy, name="self_attention"
        )
        self.self_attention_residual = Residual(**residual, name="self_attention_residual")
        self.cross_attention = MultiHeadAttention(
            num_heads, attention=cross_attention, dtype=policy, name="cross_attention"
        )
        self.cross_attention_residual = Residual(**residual, name="cross_attention_residual")
        self.feed_forward = FeedForward(ff_dim, activation, dtype=policy, name="feed_forward")
        self.feed_forward_residual = Residual(**residual, name="feed_forward_residual")

    def build(self, x_shape, encoder_output_shape):
        self.self_attention.build(x_shape)
        self.self_attention_residual.build(x_shape)
        self.cross_attention.build(x_shape, encoder_output_shape)
        self.cross_attention_residual.build(x_shape)
        self.feed_forward.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(
        self,
        x,
        encoder_output,
        source_padding_mask=None,
        return_attention_weights=False,
        training=False,
    ):
        with_weights = return_attention_weights and self.self_attention.gives_weights
        result = self.self_attention(
            self.self_attention_residual.enter(x),
            padding_mask=known_padding_mask(None, x),
            causal=True,
            return_attention_weights=with_weights,
        )
        output, self_weights = result if with_weights else (result, None)
        x = self.self_attention_residual(x, output, training=training)

        with_weights = return_attention_weights and self.cross_attention.gives_weights
        result = self.cross_attention(
            self.cross_attention_residual.enter(x),
            encoder_output,
            padding_mask=known_padding_mask(source_padding_mask, encoder_output),
            return_attention_weights=with_weights,
        )
        output, cross_weights = result if with_weights else (result, None)
        x = self.cross_attention_residual(x, output, training=training)

        output = self.feed_forward(self.feed_forward_residual.enter(x))
        x = self.feed_forward_residual(x, output, training=training)
        return (x, self_weights, cross_weights) if return_attention_weights else x

    def decoding_weights(self):
        """Returns the weights that `decode_step` reads in another form: a list of tensors."""
        return self.self_attention.decoding_weights()

    def start_decoding(self, encoder_output, num_hypotheses, max_length, source_padding_mask=None):
        """Returns what `decode_step` needs of the sentences: `(memory, cache)`.

        Args:
            encoder_output: `(B, S, D)`.
            num_hypotheses: N, hypotheses a sentence.
            max_length: number of steps that the cache has room for.
            source_padding_mask: bool `(B, S)`.
        Returns:
            Lists of tensors: what no step changes, `(B, ...)`; what each step changes, `(B * N,
            ...)`.
        """
        num_rows = ops.shape(encoder_output)[0] * num_hypotheses
        memory = self.cross_attention.start_memory(encoder_output, padding_mask=source_padding_mask)
        return memory, self.self_attention.start_cache(num_rows, max_length)

    def decode_step(self, x, step, cache, memory, num_hypotheses, weights):
        """One more position of `call`, of N hypotheses a sentence; dropout never acts.

        Args:
            x: `(B * N, D)`.
            step: int scalar, counted from 0.
            cache, memory: of `start_decoding` or the previous step.
            num_hypotheses: N.
            weights: of `decoding_weights`.
        Returns:
            `(output, cache)`, `(B * N, D)` and the cache with this position added.
        """
        output, cache = self.self_attention.decode_step(
            self.self_attention_residual.enter(x), step, cache, weights
        )
        x = self.self_attention_residual(x, output)
        output = self.cross_attention.attend_to_memory(
            self.cross_attention_residual.enter(x), memory, num_hypotheses
        )
        x = self.cross_attention_residual(x, output)
        output = self.feed_forward(self.feed_forward_residual.enter(x))
        return self.feed_forward_residual(x, output), cache

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "ff_dim": self.ff_dim,
            "dropout": self.dropout,
            "normalize_first": self.normalize_first,
            "activation": self.activation,
            "attention": keras.saving.serialize_keras_object(self.self_attention.attention),
            "cross_attention": keras.saving.serialize_keras_object(self.cross_attention.attention),
            "rotary": self.rotary,
        }

    @classmethod
    def from_config(cls, config):
        names = "attention", "cross_attention"
        attentions = {
            name: keras.saving.deserialize_keras_object(config.get(name)) for name in names
        }
        return cls(**{**config, **attentions})
