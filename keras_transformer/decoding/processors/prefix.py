"""Outputs that begin with given bytes."""

from keras import ops

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.decoding.occurrences import has_token
from keras_transformer.types import Tensor


class Prefix:
    """Lets each output begin with bytes of its own, in whatever tokens they are written.

    In each step it allows the tokens that go on with the bytes that are left, and those that go on
    beyond them, so that an output may end the last word as it likes: "Hu" begins "Hund" too.

    Args:
        ranks: `(V,)` int32, the place of each token when tokens are sorted by their bytes; below 0
            for tokens that never stand in a text.
        sizes: `(V,)` int32, the number of bytes of each token, 0 for those.
        low, high, inner, size: see `Prefixes.arrays`, where R is the number of bytes.
    """

    def __init__(
        self, ranks: Tensor, sizes: Tensor, low: Tensor, high: Tensor, inner: Tensor, size: Tensor
    ) -> None:
        self.ranks = ranks
        self.sizes = sizes
        self.memory = low, high, inner, size

    def __call__(
        self,
        log_probs: Tensor,
        ids: Tensor,
        lengths: Tensor,
        low: Tensor,
        high: Tensor,
        inner: Tensor,
        size: Tensor,
    ) -> Tensor:
        num_written = ops.sum(ops.take(self.sizes, ids, axis=0), axis=-1)  # (B, N)
        is_open = num_written < size
        place = ops.minimum(num_written, ops.shape(low)[1] - 1)
        low, high = (ops.take_along_axis(x, place, axis=1)[..., None] for x in (low, high))
        is_allowed = (self.ranks >= low) & (self.ranks < high)  # (B, N, V)
        inner = ops.take_along_axis(inner, place[..., None], axis=1)
        is_allowed = is_allowed | has_token(inner, inner >= 0, ops.shape(log_probs)[-1])
        return ops.where(is_open[..., None] & ~is_allowed, IMPOSSIBLE, log_probs)
