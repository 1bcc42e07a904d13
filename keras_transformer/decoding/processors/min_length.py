"""A minimum length of the output."""

from keras import ops

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.errors import check_positive_integers
from keras_transformer.types import Tensor


class MinLength:
    """Lets no output end before it has a number of tokens, unless its limit is lower.

    Args:
        num_tokens: minimum tokens of an output, including the end token.
        end_id: the id of the end token.
    """

    def __init__(self, num_tokens: int, end_id: int) -> None:
        check_positive_integers(num_tokens=num_tokens)
        self.num_tokens = num_tokens
        self.end_id = end_id

    def __call__(self, log_probs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        is_end = ops.equal(ops.arange(ops.shape(log_probs)[-1]), self.end_id)  # (V,)
        is_short = (lengths + 1 < self.num_tokens)[..., None]
        return ops.where(is_short & is_end, IMPOSSIBLE, log_probs)
