"""The softmax that turns scores into attention weights.

Shapes: S key length.
"""

from keras import ops

# Replaces masked scores. It is below every real score, and finite, so that a row in which
# everything is masked is finite too.
MASKED_SCORE = -1e38


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
