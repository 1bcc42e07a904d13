"""The loop of the searches that follow one hypothesis a sentence.

Shapes: B batch (sentences), L maximum output length, V vocabulary.
"""

from keras import ops

from keras_transformer.decoding.length_penalty import normalized_score
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID


def follow_single_path(step_fn, cache, limits, max_length, length_penalty, choose):
    """Appends the token that `choose` names until each sentence has ended or reached its limit.

    Args:
        step_fn, cache, limits, max_length, length_penalty: as of `greedy_search`.
        choose: from logits `(B, V)` and the step to ids and log-probabilities, each `(B,)`.
    Returns:
        `SearchResult` with N = 1.
    """
    limits = ops.minimum(ops.cast(limits, "int32"), max_length)
    batch_size = ops.shape(limits)[0]
    positions = ops.arange(max_length, dtype="int32")  # (L,)

    def any_active(step, tokens, ids, log_probs, active, *cache):
        return ops.any(active)

    def append(step, tokens, ids, log_probs, active, *cache):
        logits, cache = step_fn(tokens, step, list(cache))
        # named sizes: a model may lose a batch size that is known, and a loop's shapes must stay
        chosen, chosen_log_probs = choose(ops.reshape(logits, (batch_size, logits.shape[-1])), step)
        chosen = ops.where(active, chosen, PAD_ID)
        log_probs = log_probs + ops.where(active, chosen_log_probs, 0.0)
        ids = ops.where(ops.equal(positions, step), chosen[:, None], ids)
        active = active & (ops.not_equal(chosen, END_ID)) & (step + 1 < limits)
        return (step + 1, chosen[:, None], ids, log_probs, active, *cache)

    start = (
        ops.convert_to_tensor(0, "int32"),
        ops.full((batch_size, 1), START_ID, dtype="int32"),
        ops.full((batch_size, max_length), PAD_ID, dtype="int32"),
        ops.zeros((batch_size,), dtype="float32"),
        limits > 0,
    )
    _, _, ids, log_probs, *_ = ops.while_loop(any_active, append, (*start, *cache))
    lengths = count_pieces(ids)
    return SearchResult(
        ids=ids[:, None],
        scores=normalized_score(log_probs, lengths, length_penalty)[:, None],
        lengths=lengths[:, None],
        finished=ops.any(ops.equal(ids, END_ID), axis=-1)[:, None],
    )


def count_pieces(ids):
    """Returns the number of pieces of `ids` `(..., L)`, the end token counted, as int32."""
    return ops.sum(ops.cast(ops.not_equal(ids, PAD_ID), "int32"), axis=-1)
