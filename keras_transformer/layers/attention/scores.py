"""The scores of attention, and the softmax that turns them into weights.

Shapes: B batch, T query length, S key length, K width of queries and keys, D_q and D_k their widths
where they differ, U units.
"""

import math

from keras import ops

from keras_transformer.types import Tensor

# Replaces masked scores. It is below every real score, and finite, so that a row in which
# everything is masked is finite too.
MASKED_SCORE = -1e38


def dot_product_scores(query: Tensor, key: Tensor) -> Tensor:
    """Returns score(q, k) = q · k, from `(B, T, K)` and `(B, S, K)` to `(B, T, S)`.

    Source: Luong et al., 2015, eq. 8, "dot", https://arxiv.org/abs/1508.04025. Costs T S K products
    per sentence.
    """
    return ops.matmul(query, ops.transpose(key, (0, 2, 1)))


def scaled_dot_product_scores(query: Tensor, key: Tensor) -> Tensor:
    """Returns q · k / sqrt(K) (Vaswani et al., 2017, eq. 1, https://arxiv.org/abs/1706.03762).

    If the components of q and k have unit variance, q · k has variance K. Without the scale, large
    values would push the softmax into regions where its gradients vanish.
    """
    return dot_product_scores(query * (1.0 / math.sqrt(query.shape[-1])), key)


def multiplicative_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Returns score(q, k) = q W k, a dot product for queries and keys of different widths.

    Source: Luong et al., 2015, eq. 8, "general", https://arxiv.org/abs/1508.04025.

    Args:
        query: `(B, T, D_q)`.
        key: `(B, S, D_k)`.
        weight: W, `(D_q, D_k)`.
    Returns:
        `(B, T, S)`. Costs T D_q D_k + T S D_k products per sentence.
    """
    return dot_product_scores(project(query, weight), key)


def additive_scores(
    query: Tensor, key: Tensor, query_weight: Tensor, key_weight: Tensor, score_weight: Tensor
) -> Tensor:
    """Returns score(q, k) = u · tanh(W1 k + W2 q), a network of one hidden layer.

    Source: Bahdanau et al., 2015, section A.1.2, https://arxiv.org/abs/1409.0473.

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


def project(x, weight):
    """Returns x W as one product of two matrices, from `(..., D)` and `(D, U)` to `(..., U)`.

    A product of higher rank would be transposed in the gradient by a permutation that TensorFlow
    computes. XLA needs it as a constant, and refuses a loop over such a step.
    """
    flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), weight)
    return ops.reshape(flat, (*ops.shape(x)[:-1], weight.shape[-1]))


def masked_softmax(scores, mask=None):
    """Returns the softmax of the scores that are not masked.

    Args:
        scores: `(..., S)` float32.
        mask: bool, broadcastable to the scores; True = attend.
    Returns:
        `(..., S)`, 0 where masked. A row in which everything is masked is all zeros.
    """
    if mask is None:
        return softmax(scores)
    weights = softmax(ops.where(mask, scores, MASKED_SCORE))
    return ops.where(mask, weights, 0.0)  # for rows in which everything is masked


def softmax(scores):
    """Returns the softmax over the last axis."""
    if scores.shape[-1] == 1:
        return ops.ones_like(scores)  # Keras would warn about a single key
    return ops.softmax(scores)
