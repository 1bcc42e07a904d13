"""Which tokens of the vocabulary some ids contain.

Shapes: B batch (inputs), N hypotheses of each input, L positions, V vocabulary.
"""

from keras import ops


def has_token(ids, is_marked, vocab_size):
    """Returns `(B, N, V)` bool: which tokens stand at the marked positions of each hypothesis.

    Args:
        ids: `(B, N, L)` int32.
        is_marked: `(B, N, L)` bool, or what broadcasts to it.
        vocab_size: V.
    """
    batch_size, num_hypotheses, length = ops.shape(ids)
    num_rows = batch_size * num_hypotheses
    tokens = ops.where(is_marked, ids, vocab_size)  # the others: a token that is cut off below
    row_starts = ops.arange(num_rows, dtype="int32")[:, None] * (vocab_size + 1)
    places = ops.reshape(tokens, (num_rows, length)) + row_starts
    is_there = ops.scatter_update(
        ops.zeros((num_rows * (vocab_size + 1),), dtype="bool"),
        ops.reshape(places, (num_rows * length, 1)),
        ops.ones((num_rows * length,), dtype="bool"),
    )
    is_there = ops.reshape(is_there, (batch_size, num_hypotheses, vocab_size + 1))
    return is_there[..., :-1]
