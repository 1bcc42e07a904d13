"""Keras layers of the Transformer, each usable on its own in a `model.fit` program."""

from keras_transformer.layers.attention import (
    MultiHeadAttention,
    ScaledDotProductAttention,
    scaled_dot_product_attention,
)
from keras_transformer.layers.decoder_block import DecoderBlock
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.encoder_block import EncoderBlock
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.layers.learned_positions import LearnedPositions
from keras_transformer.layers.masks import causal_mask, combined_mask, padding_mask
from keras_transformer.layers.residual import Residual
from keras_transformer.layers.sinusoidal_positions import SinusoidalPositions, sinusoidal_encoding
from keras_transformer.layers.token_embedding import TokenEmbedding

__all__ = [
    "DecoderBlock",
    "Dense",
    "Dropout",
    "EncoderBlock",
    "FeedForward",
    "LayerNormalization",
    "LearnedPositions",
    "MultiHeadAttention",
    "Residual",
    "ScaledDotProductAttention",
    "SinusoidalPositions",
    "TokenEmbedding",
    "causal_mask",
    "combined_mask",
    "padding_mask",
    "scaled_dot_product_attention",
    "sinusoidal_encoding",
]
