"""Attention, one variant a file; `MultiHeadAttention` wraps any of them."""

from keras_transformer.layers.attention.multi_head import MultiHeadAttention
from keras_transformer.layers.attention.scaled_dot_product import (
    ScaledDotProductAttention,
    scaled_dot_product_attention,
)

__all__ = ["MultiHeadAttention", "ScaledDotProductAttention", "scaled_dot_product_attention"]
