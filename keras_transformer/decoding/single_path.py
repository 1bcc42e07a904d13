"""The loop of the searches that follow one hypothesis a sentence.

Shapes: B batch (sentences), L maximum output length, V vocabulary.
"""

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.length_penalty import normalized_score
from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID


def follow_single_path(
    step_fn, cache, memory, limits, max_length, length_penalty, choose, choices=()
):
    """Appends the token that `choose` names until each sentence has ended or reached its limit.

    Args:
        step_fn, cache, memory, limits, max_length, length_penalty: as of `greedy_search`.
        choose: from logits `(B, 1, V)`, the step and the choices to ids and log-probabilities, each
            `(B,)`.
        choices: list of tensors `(B, ...)`, what `choose` needs to know of each sentence.
    Returns:
        `SearchResult` with N = 1.
    """
    limits = ops.minimum(ops.cast(limits, "int32"), max_length)
    batch_size = ops.shape(limits)[0]
    positions = ops.arange(max_length, dtype="int32")  # (L,)

    def append(step, state, cache, memory):
        active, tokens, ids, log_probs = state
        limits, choices, memory = memory[0], memory[1:num_own], memory[num_own:]
        logits, cache = step_fn(tokens, step, cache, memory)
        chosen, chosen_log_probs = choose(logits, step, *choices)
        chosen = ops.where(active, chosen, PAD_ID)
        log_probs = log_probs + ops.where(active, chosen_log_probs, 0.0)
        ids = ops.where(ops.equal(positions, step), chosen[:, None], ids)
        active = active & (ops.not_equal(chosen, END_ID)) & (step + 1 < limits)
        return [active, chosen[:, None], ids, log_probs], cache

    start = [
        limits > 0,
        ops.full((batch_size, 1), START_ID, dtype="int32"),
        ops.full((batch_size, max_length), PAD_ID, dtype="int32"),
        ops.zeros((batch_size,), dtype="float32"),
    ]
    num_own = 1 + len(choices)
    _, _, ids, log_probs = backend.search_loop(
        append, start, cache, [limits, *choices, *memory], 1, max_length
    )
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
