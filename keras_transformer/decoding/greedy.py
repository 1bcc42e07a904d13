"""Greedy search: always the most probable next token.

Shapes: B batch (sentences), L maximum output length, V vocabulary.
"""

from keras import ops

from keras_transformer.decoding.candidates import best_continuations
from keras_transformer.decoding.single_path import follow_single_path


def greedy_search(step_fn, cache, memory, limits, max_length, length_penalty=0.6):
    """Returns for each sentence the hypothesis whose every token is the most probable one.

    Equal to `beam_search` with one hypothesis, and faster: nothing is reordered.

    Args:
        step_fn: from the previous tokens `(B, 1)`, the step (int32 scalar from 0), the cache and
            the memory to logits `(B, 1, V)` float32 and the cache with that step in it.
        cache: list of tensors `(B, H, time or 1, ...)`, what `step_fn` keeps from step to step.
        memory: list of tensors `(B, ...)`, what it reads.
        limits: `(B,)` int32, the most pieces a sentence may have, the end token counted.
        max_length: L, no smaller than any limit; an int, or on TensorFlow an int scalar.
        length_penalty: alpha of the scores' normalization; no effect on the choice.
    Returns:
        `SearchResult` with N = 1.
    """

    def most_probable(logits, step):
        log_probs, _, tokens = best_continuations(logits, ops.zeros_like(logits[..., 0]), 1)
        return tokens[:, 0], log_probs[:, 0]

    return follow_single_path(
        step_fn, cache, memory, limits, max_length, length_penalty, most_probable
    )
