"""Attention: one file per variant. `MultiHeadAttention` can use any of them."""

from keras_transformer.layers.attention.attention import Attention
from keras_transformer.layers.attention.block import BlockAttention
from keras_transformer.layers.attention.feature_maps import EluFeatures, PositiveRandomFeatures
from keras_transformer.layers.attention.linear import LinearAttention
from keras_transformer.layers.attention.local import LocalAttention
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
from keras_transformer.layers.attention.strided import StridedAttention

__all__ = [
    "Attention",
    "BlockAttention",
    "EluFeatures",
    "LinearAttention",
    "LocalAttention",
    "MultiHeadAttention",
    "PositiveRandomFeatures",
    "ScaledDotProductAttention",
    "StridedAttention",
    "additive_scores",
    "dot_product_scores",
    "multiplicative_scores",
    "scaled_dot_product_attention",
    "scaled_dot_product_scores",
]
