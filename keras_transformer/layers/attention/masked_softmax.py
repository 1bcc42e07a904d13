"""The softmax that turns scores into attention weights.

Shapes: S key length.
"""

from keras import ops

# Put in place of a masked score: below every real one, and finite, so that a row that is masked
# whole is finite too.
MASKED_SCORE = -1e38


def masked_softmax(scores, mask=None):
    """Returns the softmax of float32 `scores` `(..., S)` over what `mask` lets a query see.

    Args:
        scores: `(..., S)`.
        mask: bool, broadcastable to the scores; True = attend.
    Returns:
        `(..., S)`, zero where masked: a row with nothing to attend to is all zeros.
    """
    if mask is None:
        return softmax(scores)
    weights = softmax(ops.where(mask, scores, MASKED_SCORE))
    return ops.where(mask, weights, 0.0)  # else a row that is masked whole would attend to padding


def softmax(scores):
    """Returns the softmax over the last axis."""
    if scores.shape[-1] == 1:
        return ops.ones_like(scores)  # of one key Keras would warn
    return ops.softmax(scores)
