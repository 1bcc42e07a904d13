"""The loop of greedy search and sampling, which follow one hypothesis of each input.

Shapes: B batch (inputs), N hypotheses of each input (1), L maximum output length, V vocabulary.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.length_penalty import normalized_score
from keras_transformer.decoding.prompts import Prompts
from keras_transformer.decoding.search_result import SearchResult, count_tokens, ends_output
from keras_transformer.layers import DecodingState


class _Path(NamedTuple):
    """What the search knows about each input after some steps."""

    active: Any
    """`(B,)` bool, whether the search goes on."""
    tokens: Any
    """`(B, 1)` int32, the last token, which the next step reads."""
    ids: Any
    """`(B, L)` int32, the tokens so far, without the prompt."""
    log_probs: Any
    """`(B,)` float32, their summed log-probability."""


def follow_single_path(
    step_fn,
    state,
    prompts,
    limits,
    max_length,
    normalization,
    choose,
    choices,
    special_ids,
):
    """Appends the tokens that `choose` returns until each output has ended or reached its limit.

    Args:
        step_fn, state, prompts, limits, max_length, special_ids: see `greedy_search`.
        normalization: `(length_penalty, length_normalization)`, see there too.
        choose: function of the logits `(B, 1, V)`, the position of the token in the output (a
            scalar or `(B,)`, see `Prompts.place`) and `choices`. Returns ids and log-probabilities,
            each `(B,)`.
        choices: nested tensors `(B, ...)` that `choose` needs.
    Returns:
        `SearchResult` with N = 1.
    """
    pad_id, end_id = special_ids
    prompts = Prompts(prompts, pad_id)
    limits = ops.minimum(ops.cast(limits, "int32"), max_length)
    batch_size = ops.shape(limits)[0]
    positions = ops.arange(max_length, dtype="int32")  # (L,)

    def append(step, path, cache, memory):
        logits, state = step_fn(path.tokens, step, DecodingState(cache, memory["model"]))
        place = prompts.place(step, memory["prompts"])
        chosen, log_probs = choose(logits, place, memory["choices"])
        tokens, is_given = prompts.replace(step, memory["prompts"], chosen[:, None])
        ends = ends_output(tokens[:, 0], end_id)
        if is_given is not None:
            log_probs = ops.where(is_given[:, 0], 0.0, log_probs)
            ends = ends & ~is_given[:, 0]
        tokens = ops.where(path.active[:, None], tokens, pad_id)
        is_place = ops.equal(positions, ops.reshape(place, (-1, 1)))
        path = _Path(
            active=path.active & ~ends & (place + 1 < memory["limits"]),
            tokens=tokens,
            ids=ops.where(is_place, tokens, path.ids),
            log_probs=path.log_probs + ops.where(path.active, log_probs, 0.0),
        )
        return path, state.cache

    start = _Path(
        active=limits > 0,
        tokens=prompts.first_tokens(1),
        ids=ops.full((batch_size, max_length), pad_id, dtype="int32"),
        log_probs=ops.zeros((batch_size,), dtype="float32"),
    )
    memory = {
        "model": state.memory,
        "limits": limits,
        "prompts": prompts.memory,
        "choices": choices,
    }
    num_steps = max_length + prompts.num_extra_steps
    path = backend.search_loop(append, start, state.cache, memory, 1, num_steps)
    lengths = count_tokens(path.ids, pad_id)
    return SearchResult(
        ids=path.ids[:, None],
        scores=normalized_score(path.log_probs, lengths, *normalization)[:, None],
        lengths=lengths[:, None],
        finished=ops.any(ends_output(path.ids, end_id), axis=-1)[:, None],
    )
