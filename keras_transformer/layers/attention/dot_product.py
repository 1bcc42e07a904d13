"""Dot-product scores (Luong et al., 2015, eq. 8, "dot", https://arxiv.org/abs/1508.04025).

Shapes: B batch, T query length, S key length, K width of queries and keys.
"""

import math

from keras import ops

from keras_transformer.types import Tensor


def dot_product_scores(query: Tensor, key: Tensor) -> Tensor:
    """Returns score(q, k) = q · k, from `(B, T, K)` and `(B, S, K)` to `(B, T, S)`.

    Costs T S K products per sentence.
    """
    return ops.matmul(query, ops.transpose(key, (0, 2, 1)))


def scaled_dot_product_scores(query: Tensor, key: Tensor) -> Tensor:
    """Returns q · k / sqrt(K) (Vaswani et al., 2017, eq. 1, https://arxiv.org/abs/1706.03762).

    If the components of q and k have unit variance, q · k has variance K. Without the scale, large
    values would push the softmax into regions where its gradients vanish.
    """
    return dot_product_scores(query * (1.0 / math.sqrt(query.shape[-1])), key)
