"""Additive scores (Bahdanau et al., 2015, section A.1.2, https://arxiv.org/abs/1409.0473).

Shapes: B batch, T query length, S key length, D_q and D_k widths of a query and a key, U units.
"""

from keras import ops

from keras_transformer.layers.attention.projection import project
from keras_transformer.types import Tensor


def additive_scores(
    query: Tensor, key: Tensor, query_weight: Tensor, key_weight: Tensor, score_weight: Tensor
) -> Tensor:
    """Returns score(q, k) = u · tanh(W1 k + W2 q), a network of one hidden layer.

    Args:
        query: `(B, T, D_q)`.
        key: `(B, S, D_k)`.
        query_weight: W2, `(D_q, U)`.
        key_weight: W1, `(D_k, U)`.
        score_weight: u, `(U,)`.
    Returns:
        `(B, T, S)`. An array `(B, T, S, U)` is computed on the way.
    """
    return projected_additive_scores(
        project(query, query_weight), project(key, key_weight), score_weight
    )


def projected_additive_scores(query, key, score_weight):
    """Returns the same from W2 q `(B, T, U)` and W1 k `(B, S, U)`, to project keys only once."""
    hidden = ops.tanh(query[:, :, None] + key[:, None])  # (B, T, S, U)
    return ops.squeeze(project(hidden, score_weight[:, None]), axis=-1)
