"""Keras layers of the Transformer, each usable on its own in a `model.fit` program."""

from keras_transformer.layers.attention.attention import Attention
from keras_transformer.layers.attention.feature_maps import EluFeatures, PositiveRandomFeatures
from keras_transformer.layers.attention.linear import LinearAttention
from keras_transformer.layers.attention.multi_head import MultiHeadAttention
from keras_transformer.layers.attention.scaled_dot_product import (
    ScaledDotProductAttention,
    scaled_dot_product_attention,
)
from keras_transformer.layers.attention.scores import (
    additive_scores,
    dot_product_scores,
    multiplicative_scores,
    scaled_dot_product_scores,
)
from keras_transformer.layers.attention.sparse import (
    BlockAttention,
    LocalAttention,
    StridedAttention,
)
from keras_transformer.layers.attention.ssru import Ssru
from keras_transformer.layers.bert_embedding import BertEmbedding
from keras_transformer.layers.decoder import Decoder
from keras_transformer.layers.decoder_block import DecoderBlock
from keras_transformer.layers.decoding_step import DecodingState
from keras_transformer.layers.dense import Dense, HeadwiseDense
from keras_transformer.layers.dropout import Dropout, WordDropout
from keras_transformer.layers.encoder import Encoder
from keras_transformer.layers.encoder_block import EncoderBlock
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.grid_positions import GridPositions
from keras_transformer.layers.image_embeddings import ConvolutionalEmbedding, PatchEmbedding
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.layers.masks import causal_mask, combined_mask, padding_mask
from keras_transformer.layers.positions import (
    LearnedPositions,
    SinusoidalPositions,
    alibi_bias,
    alibi_slopes,
    rotate,
    sinusoidal_encoding,
)
from keras_transformer.layers.residual import Residual
from keras_transformer.layers.rnn_decoder import RnnDecoder
from keras_transformer.layers.rnn_encoder import RnnEncoder
from keras_transformer.layers.token_embedding import TokenEmbedding

__all__ = [
    "Attention",
    "BertEmbedding",
    "BlockAttention",
    "ConvolutionalEmbedding",
    "Decoder",
    "DecoderBlock",
    "DecodingState",
    "Dense",
    "Dropout",
    "EluFeatures",
    "Encoder",
    "EncoderBlock",
    "FeedForward",
    "GridPositions",
    "HeadwiseDense",
    "LayerNormalization",
    "LearnedPositions",
    "LinearAttention",
    "LocalAttention",
    "MultiHeadAttention",
    "PatchEmbedding",
    "PositiveRandomFeatures",
    "Residual",
    "RnnDecoder",
    "RnnEncoder",
    "ScaledDotProductAttention",
    "SinusoidalPositions",
    "Ssru",
    "StridedAttention",
    "TokenEmbedding",
    "WordDropout",
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
