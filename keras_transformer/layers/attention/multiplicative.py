"""Multiplicative scores (Luong et al., 2015, eq. 8, "general", https://arxiv.org/abs/1508.04025).

Shapes: B batch, T query length, S key length, D_q and D_k widths of a query and a key.
"""

from keras_transformer.layers.attention.dot_product import dot_product_scores
from keras_transformer.layers.attention.projection import project
from keras_transformer.types import Tensor


def multiplicative_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Returns score(q, k) = q W k, a dot product for queries and keys of different widths.

    Args:
        query: `(B, T, D_q)`.
        key: `(B, S, D_k)`.
        weight: W, `(D_q, D_k)`.
    Returns:
        `(B, T, S)`. Costs T D_q D_k + T S D_k products per sentence.
    """
    return dot_product_scores(project(query, weight), key)
