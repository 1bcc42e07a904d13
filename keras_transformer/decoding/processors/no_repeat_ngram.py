"""No sequence of n tokens twice."""

from keras import ops

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.decoding.occurrences import has_token
from keras_transformer.errors import check_positive_integers
from keras_transformer.types import Tensor


class NoRepeatNgram:
    """Forbids each token that would complete a sequence of n tokens which the output already has.

    See Paulus et al., 2018, section 2.5, https://arxiv.org/abs/1705.04304, with n = 3.

    Args:
        num_tokens: n.
    """

    def __init__(self, num_tokens: int) -> None:
        check_positive_integers(num_tokens=num_tokens)
        self.num_tokens = num_tokens

    def __call__(self, log_probs: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        size = self.num_tokens
        max_length = ops.shape(ids)[-1]
        # Positions of n-grams that are too long for the output wrap around; none of them is used.
        starts = ops.arange(max_length, dtype="int32")  # (L,)
        is_repeated = starts + size <= lengths[..., None]
        for i in range(size - 1):  # whether all tokens but the last are those that stand at the end
            last = ops.maximum(lengths - (size - 1) + i, 0)
            last = ops.broadcast_to(last[..., None], (*ops.shape(ids)[:2], 1))
            is_same = ops.equal(ops.roll(ids, -i, axis=-1), ops.take_along_axis(ids, last, axis=-1))
            is_repeated = is_repeated & is_same
        completing = ops.roll(ids, 1 - size, axis=-1)
        is_forbidden = has_token(completing, is_repeated, ops.shape(log_probs)[-1])
        return ops.where(is_forbidden, IMPOSSIBLE, log_probs)
