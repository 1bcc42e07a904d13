"""Attention: one file per variant. `MultiHeadAttention` can use any of them."""
