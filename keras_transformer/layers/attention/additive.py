"""Additive scores (Bahdanau et al., 2015, section A.1.2, https://arxiv.org/abs/1409.0473).

Shapes: B batch, T query length, S key length, D_q and D_k widths of a query and a key, U units.
"""

from keras import ops


def additive_scores(query, key, query_weight, key_weight, score_weight):
    """Returns score(q, k) = u · tanh(W1 k + W2 q), a network of one hidden layer.

    Args:
        query: `(B, T, D_q)`.
        key: `(B, S, D_k)`.
        query_weight: W2, `(D_q, U)`.
        key_weight: W1, `(D_k, U)`.
        score_weight: u, `(U,)`.
    Returns:
        `(B, T, S)`, by way of an array `(B, T, S, U)`.
    """
    queries = ops.matmul(query, query_weight)[:, :, None]  # (B, T, 1, U)
    keys = ops.matmul(key, key_weight)[:, None]  # (B, 1, S, U)
    return ops.squeeze(ops.matmul(ops.tanh(keys + queries), score_weight[:, None]), axis=-1)
