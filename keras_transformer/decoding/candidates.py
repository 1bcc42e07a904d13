"""The best next tokens of many rows, without a sort of the vocabulary.

Shapes: B batch (inputs), N hypotheses of each input, V vocabulary, R rows, C candidates, M chosen.
"""

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.special_ids import OUR_SPECIAL_IDS

NUM_FORBIDDEN = OUR_SPECIAL_IDS.num_forbidden
BLOCK_SIZE = 64
"""Size of the blocks of a vocabulary, and of one whose size is not static, which is a multiple."""
MIN_BLOCKS = 3
"""Blocks of a vocabulary whose size is not static, at least: enough for a beam of N hypotheses that
is kept full, which needs 2 N continuations, and N more for blocks that forbidden tokens win."""


def best_continuations(
    logits, log_probs, num_best, num_forbidden=NUM_FORBIDDEN, are_log_probs=False
):
    """Returns the most probable one-token continuations of the hypotheses of each input.

    Args:
        logits: `(B, N, V)` float32, of the token that follows each hypothesis. If V is not static,
            it is a multiple of `BLOCK_SIZE`, and at least `MIN_BLOCKS` blocks.
        log_probs: `(B, N)`, of the hypotheses.
        num_best: M, at most N * (V - num_forbidden), and 2 N if V is not static.
        num_forbidden: how many ids, from 0 on, may not be chosen.
        are_log_probs: whether `logits` are log-probabilities already, which need no log softmax.
    Returns:
        `(log_probs, parents, tokens)`, each `(B, M)`, the best first: the log-probability of the
        hypothesis plus that of the token (log softmax over all of V), the index of the hypothesis
        that is continued, and the token.
    """
    num_hypotheses = logits.shape[1]
    blocks = _blocks(logits)  # (B, N, number, size)
    num_blocks, block_size = ops.shape(blocks)[2:]
    maxima = ops.max(blocks, axis=-1)  # (B, N, number)
    best_logits, best_log_probs = _best_tokens(logits, blocks, maxima, are_log_probs)  # (B, N)
    log_probs = log_probs + best_log_probs

    # The best tokens are in the blocks with the largest maxima. Blocks whose maximum is a forbidden
    # token may be among them, one per hypothesis, so that many more are taken.
    blocks_each = num_hypotheses * num_blocks
    num_chosen = num_best + num_hypotheses
    if isinstance(blocks_each, int):
        num_chosen = min(num_chosen, blocks_each)
    maxima = (maxima - best_logits[..., None]) + log_probs[..., None]
    _, chosen = _top(ops.reshape(maxima, (-1, blocks_each)), num_chosen)  # (B, C)
    parents = chosen // num_blocks
    tokens = (chosen % num_blocks)[..., None] * block_size + ops.arange(block_size, dtype="int32")
    values = backend.batch_gather(ops.reshape(blocks, (-1, blocks_each, block_size)), chosen)
    values = values - backend.batch_gather(best_logits, parents)[..., None]
    values = values + backend.batch_gather(log_probs, parents)[..., None]
    values = forbid(values, tokens, num_forbidden)

    candidates = (-1, num_chosen * block_size)
    log_probs, best = _top(ops.reshape(values, candidates), num_best)
    tokens = _in_vocabulary(ops.reshape(tokens, candidates), logits)
    tokens = backend.batch_gather(tokens, best)
    return log_probs, backend.batch_gather(parents, best // block_size), tokens


def best_continuation(logits, num_forbidden=NUM_FORBIDDEN, are_log_probs=False):
    """Returns what `best_continuations` does for one hypothesis and one continuation, in less time.

    Args:
        logits: `(B, V)` float32.
    Returns:
        `(log_probs, tokens)`, each `(B, 1)`.
    """
    blocks = _blocks(logits)  # (B, number, size)
    num_blocks, block_size = ops.shape(blocks)[1:]
    # One block may have the largest maximum because of a forbidden token.
    num_chosen = min(2, num_blocks) if isinstance(num_blocks, int) else 2
    chosen = _top(ops.max(blocks, axis=-1), num_chosen)[1]  # (B, C)
    candidates = (-1, num_chosen * block_size)
    values = ops.reshape(backend.batch_gather(blocks, chosen), candidates)
    tokens = chosen[..., None] * block_size + ops.arange(block_size, dtype="int32")
    tokens = _in_vocabulary(ops.reshape(tokens, candidates), logits)
    best_logits, best = _top(values, 1)
    allowed_logits, allowed = _top(forbid(values, tokens, num_forbidden), 1)
    if are_log_probs:
        return allowed_logits, backend.batch_gather(tokens, allowed)
    best_log_probs = _log_prob(logits, backend.batch_gather(tokens, best))
    log_probs = best_log_probs + (allowed_logits - best_logits)
    return log_probs, backend.batch_gather(tokens, allowed)


def _best_tokens(logits, blocks, maxima, are_log_probs):
    """Returns the logit and the log softmax of each hypothesis's best token, `(B, N)`.

    The log softmax of any other token follows from these two.
    """
    num_blocks, block_size = ops.shape(blocks)[2:]
    shape = (-1, logits.shape[1])
    best_logits, best_block = _top(ops.reshape(maxima, (-1, num_blocks)), 1)  # (B * N, 1)
    if are_log_probs:
        best_logits = ops.reshape(best_logits, shape)
        return best_logits, best_logits
    blocks = ops.reshape(blocks, (-1, num_blocks, block_size))
    _, place = _top(backend.batch_gather(blocks, best_block)[:, 0], 1)
    flat_logits = ops.reshape(logits, (-1, ops.shape(logits)[-1]))  # (B * N, V)
    best = _in_vocabulary(best_block * block_size + place, logits)
    log_probs = _log_prob(flat_logits, best)
    return ops.reshape(best_logits, shape), ops.reshape(log_probs, shape)


def _log_prob(logits, best):
    """Returns the log softmax `(R, 1)` of the most probable tokens `best` `(R, 1)`.

    Their probability is never 0, so that its logarithm is finite. A softmax is half the work of
    logsumexp on a CPU.
    """
    return ops.log(backend.batch_gather(ops.softmax(logits), best))


def _in_vocabulary(tokens, logits):
    """Returns the tokens, none of which is beyond the vocabulary.

    Where logits are NaN, what fills up the last block may seem to be the largest.
    """
    return ops.minimum(tokens, ops.shape(logits)[-1] - 1)


def _top(values, k):
    """Returns what `ops.top_k` does, with int32 indices. For k = 1, Keras's argmax takes longer."""
    best, indices = ops.top_k(values, k)
    indices = ops.cast(indices, "int32")
    if isinstance(k, int) and k == 1:  # where all values are NaN, TensorFlow's index is too large
        indices = ops.minimum(indices, ops.shape(values)[-1] - 1)
    return best, indices


def forbid(log_probs, ids, num_forbidden):
    """Returns `log_probs` with `IMPOSSIBLE` where `ids`, of the same shape, may not be chosen."""
    return ops.where(ids < num_forbidden, IMPOSSIBLE, log_probs) if num_forbidden else log_probs


def largest(values, k):
    """Returns `(values, ids)` of the k largest entries of each row, in order, as `ops.top_k` does.

    Exact, and four times as fast on long rows: the k largest entries are in the k blocks with the
    largest maxima, so only those blocks are sorted.

    Args:
        values: `(R, V)`; if V is not static, it is a multiple of `BLOCK_SIZE`.
        k: at most V, an int or int scalar.
    """
    blocks = _blocks(values)
    num_blocks, block_size = blocks.shape[1:]
    if num_blocks is None or num_blocks < 4 * k:
        return _top(values, k)
    _, best_blocks = _top(ops.max(blocks, axis=-1), k)  # (R, k)
    values = ops.reshape(backend.batch_gather(blocks, best_blocks), (-1, k * block_size))
    values, ids = _top(values, k)
    return values, backend.batch_gather(
        best_blocks, ids // block_size
    ) * block_size + ids % block_size


def _blocks(values):
    """Returns `values` `(..., V)` as blocks `(..., number, size)`, padded with -inf."""
    vocab_size = values.shape[-1]
    if vocab_size is None:
        shape = ops.shape(values)
        return ops.reshape(values, (*shape[:-1], shape[-1] // BLOCK_SIZE, BLOCK_SIZE))
    size = next((n for n in range(BLOCK_SIZE, 31, -1) if vocab_size % n == 0), BLOCK_SIZE)
    number = -(-vocab_size // size)
    missing = number * size - vocab_size
    if missing:
        paddings = [(0, 0)] * (len(values.shape) - 1) + [(0, missing)]
        values = ops.pad(values, paddings, constant_values=float("-inf"))
    return ops.reshape(values, (-1, *values.shape[1:-1], number, size))
