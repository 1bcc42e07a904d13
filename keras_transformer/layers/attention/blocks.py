"""Sequences cut into blocks of equal length, as sparse and linear attention compute them.

Shapes: B batch, T length, N blocks, C positions per block.
"""

from keras import ops


def at_most(size, length):
    """Returns the smaller of both, at least 1; `size` if the length is symbolic, as in JAX."""
    if isinstance(length, int):
        return max(1, min(size, length))
    return ops.maximum(1, ops.minimum(size, length)) if ops.is_tensor(length) else size


def in_blocks(x, block_size):
    """Returns `x` `(B, T, ...)` as `(B, N, C, ...)`, padded with zeros at the end."""
    length = ops.shape(x)[1]
    num_blocks = -(-length // block_size)
    missing = num_blocks * block_size - length
    num_sentences = ops.shape(x)[0]
    x = ops.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (len(x.shape) - 2))
    return ops.reshape(x, (num_sentences, num_blocks, block_size, *x.shape[2:]))


def from_blocks(x, length):
    """Returns `x` `(B, N, C, ...)` as `(B, T, ...)`: the inverse of `in_blocks`."""
    num_sentences, num_blocks, block_size = ops.shape(x)[:3]
    return ops.reshape(x, (num_sentences, num_blocks * block_size, *x.shape[3:]))[:, :length]


def real_positions(x, padding_mask):
    """Returns bool `(B, T)`, True where a position of `x` `(B, T, ...)` is real."""
    if padding_mask is not None:
        # one mask may be that of all sentences
        return ops.broadcast_to(ops.cast(padding_mask, "bool"), ops.shape(x)[:2])
    return ops.ones((ops.shape(x)[0], ops.shape(x)[1]), dtype="bool")


def with_neighbours(blocks, causal):
    """Concatenates each block with the previous one and, if not causal, with the next one.

    Args:
        blocks: `(B, N, C, ...)`.
    Returns:
        `(B, N, 2 C, ...)` or `(B, N, 3 C, ...)`, with zeros or False beyond the ends.
    """
    num_blocks = ops.shape(blocks)[1]
    beyond = ops.zeros_like(blocks[:, :1])
    padded = ops.concatenate([beyond, blocks] if causal else [beyond, blocks, beyond], axis=1)
    parts = [padded[:, i : i + num_blocks] for i in range(2 if causal else 3)]
    return ops.concatenate(parts, axis=2)


def distances_to_neighbours(block_size, causal):
    """Returns `(C, 2 C)` or `(C, 3 C)`: query position minus key position of `with_neighbours`."""
    keys = ops.arange((2 if causal else 3) * block_size) - block_size
    return ops.arange(block_size)[:, None] - keys[None]
