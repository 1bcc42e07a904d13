"""A penalty on tokens that an output already has."""

import math

from keras import ops

from keras_transformer.decoding.occurrences import has_token
from keras_transformer.errors import InputError
from keras_transformer.types import Tensor


class RepetitionPenalty:
    """Multiplies the log-probability of each token that the output already has.

    This is the penalized sampling of CTRL (Keskar et al., 2019, section 4.1,
    https://arxiv.org/abs/1909.05858), which divides positive scores and multiplies negative ones;
    log-probabilities are never positive. As in `generate` of Hugging Face with a beam, it changes
    log-probabilities and not logits. The end token is never repeated.

    Args:
        penalty: theta, from 1, which changes nothing; the paper uses 1.2.
    Raises:
        ValueError: a penalty below 1.
    """

    def __init__(self, penalty: float) -> None:
        if not 1 <= penalty < math.inf:
            raise InputError(
                f"The penalty on repetition must be a number from 1. Received: {penalty=}. "
                "1 changes nothing."
            )
        self.penalty = penalty

    def __call__(self, log_probs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        is_used = ops.arange(ops.shape(ids)[-1], dtype="int32") < lengths[..., None]
        is_repeated = has_token(ids, is_used, ops.shape(log_probs)[-1])
        return ops.where(is_repeated, self.penalty * log_probs, log_probs)
