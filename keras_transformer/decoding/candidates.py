"""The best next tokens of many rows, without a sort of the vocabulary.

Shapes: R rows, V vocabulary, C candidates, M chosen.
"""

from keras import ops

from keras_transformer.decoding.search_result import IMPOSSIBLE
from keras_transformer.special_ids import END_ID

NUM_FORBIDDEN = END_ID
"""Padding, unknown and start stand before the end token, and no search may choose them."""


def candidate_tokens(logits, num_tokens):
    """Returns the tokens that may follow, with their log-probabilities among all of V.

    Args:
        logits: `(R, V)` float32.
        num_tokens: how many allowed tokens are needed.
    Returns:
        `(ids, log_probs)`, each `(R, C)` with C = num_tokens + NUM_FORBIDDEN or V, the best first,
        except that forbidden ones stay where they rank, with the log-probability `IMPOSSIBLE`.
    """
    values, ids = largest(logits, min(num_tokens + NUM_FORBIDDEN, logits.shape[-1]))
    # log softmax of the candidates alone. The best token's probability is at least 1 / V, so its
    # logarithm is safe, and softmax is half the work of logsumexp on a CPU.
    best_log_probs = ops.log(take_entries(ops.softmax(logits), ids[:, :1]))  # (R, 1)
    log_probs = values - values[:, :1] + best_log_probs
    return ids, forbid(log_probs, ids)


def forbid(log_probs, ids):
    """Returns `log_probs` with `IMPOSSIBLE` where `ids`, of the same shape, may not be chosen."""
    return ops.where(ids < NUM_FORBIDDEN, IMPOSSIBLE, log_probs)


def largest(values, k):
    """Returns `(values, ids)` of the k largest of each row, the largest first, as `ops.top_k`.

    Exact, and four times as fast on long rows: the k largest stand in the k blocks with the
    largest maxima, so only those blocks are sorted.

    Args:
        values: `(R, V)`.
        k: at most V.
    """
    vocab_size = values.shape[-1]
    block_size = next((size for size in range(64, 31, -1) if vocab_size % size == 0), 64)
    num_blocks = -(-vocab_size // block_size)
    if num_blocks < 4 * k:
        values, ids = ops.top_k(values, k)
        return values, ops.cast(ids, "int32")
    padding = num_blocks * block_size - vocab_size
    if padding:
        values = ops.pad(values, ((0, 0), (0, padding)), constant_values=float("-inf"))
    blocks = ops.reshape(values, (-1, num_blocks, block_size))
    _, best_blocks = ops.top_k(ops.max(blocks, axis=-1), k)  # (R, k)
    best_blocks = ops.cast(best_blocks, "int32")
    values = ops.reshape(take_entries(blocks, best_blocks), (-1, k * block_size))
    values, ids = ops.top_k(values, k)
    ids = ops.cast(ids, "int32")
    return values, take_entries(best_blocks, ids // block_size) * block_size + ids % block_size


def take_entries(values, indices):
    """Returns `(R, M, ...)`: of each row of `values` `(R, C, ...)` the entries `indices` `(R, M)`.

    C must be static. One flat gather: `ops.take_along_axis` is a dozen operations on TensorFlow.
    """
    num_entries = values.shape[1]
    row_starts = ops.arange(ops.shape(values)[0], dtype="int32")[:, None] * num_entries
    flat_values = ops.reshape(values, (-1, *ops.shape(values)[2:]))
    return ops.take(flat_values, indices + row_starts, axis=0)
