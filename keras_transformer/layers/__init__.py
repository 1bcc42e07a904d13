"""Keras layers of the Transformer, each usable on its own in a `model.fit` program."""

from keras_transformer.layers.alibi import alibi_bias, alibi_slopes
from keras_transformer.layers.attention import (
    Attention,
    BlockAttention,
    EluFeatures,
    HeadwiseDense,
    LinearAttention,
    LocalAttention,
    MultiHeadAttention,
    PositiveRandomFeatures,
    ScaledDotProductAttention,
    StridedAttention,
    additive_scores,
    dot_product_scores,
    multiplicative_scores,
    scaled_dot_product_attention,
    scaled_dot_product_scores,
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
from keras_transformer.layers.rotary import rotate
from keras_transformer.layers.sinusoidal_positions import SinusoidalPositions, sinusoidal_encoding
from keras_transformer.layers.token_embedding import TokenEmbedding

__all__ = [
    "Attention",
    "BlockAttention",
    "DecoderBlock",
    "Dense",
    "Dropout",
    "EluFeatures",
    "EncoderBlock",
    "FeedForward",
    "HeadwiseDense",
    "LayerNormalization",
    "LearnedPositions",
    "LinearAttention",
    "LocalAttention",
    "MultiHeadAttention",
    "PositiveRandomFeatures",
    "Residual",
    "ScaledDotProductAttention",
    "SinusoidalPositions",
    "StridedAttention",
    "TokenEmbedding",
    "additive_scores",
    "alibi_bias",
    "alibi_slopes",
    "causal_mask",
    "combined_mask",
    "dot_product_scores",
    "multiplicative_scores",
    "padding_mask",
    "rotate",
    "scaled_dot_product_attention",
    "scaled_dot_product_scores",
    "sinusoidal_encoding",
]
