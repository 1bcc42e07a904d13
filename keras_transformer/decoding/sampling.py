"""Random translations: tokens drawn from the model's distribution, or from its likely part.

Shapes: B batch (sentences), L maximum output length, V vocabulary, C candidates.
"""

import keras
from keras import ops

from keras_transformer.decoding.candidates import NUM_FORBIDDEN, forbid, largest, take_entries
from keras_transformer.decoding.single_path import follow_single_path

TEMPERATURES = 1e-6, 1e6
"""Below, the draw is greedy search; above, of equally probable tokens; float32 holds neither."""


def sample(
    step_fn,
    cache,
    memory,
    limits,
    max_length,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    *,
    seed,
    length_penalty=0.6,
):
    """Returns one random hypothesis a sentence.

    Each token is drawn from `softmax(logits / temperature)`, cut down to the `top_k` most probable
    tokens (Fan et al., 2018, section 5.1, https://arxiv.org/abs/1805.04833), then to the fewest
    whose probabilities reach `top_p` (Holtzman et al., 2020, eq. 2,
    https://arxiv.org/abs/1904.09751), by inversion of the cumulative distribution.

    Args:
        step_fn, cache, memory, limits, max_length, length_penalty: as of `greedy_search`. The
            scores are of the model's own distribution, whatever the draw was from.
        temperature: from 1e-6 to 1e6; the lower, the more the probable tokens are preferred.
        top_k: number of tokens to draw from; 0: all.
        top_p: probability of the tokens to draw from, in (0, 1].
        seed: int, or a `keras.random.SeedGenerator` for a new draw each call. The same seed, batch
            and `max_length` give the same answer.
    Returns:
        `SearchResult` with N = 1.
    Raises:
        ValueError: temperature, top_k or top_p outside its range.
    """
    lowest, highest = TEMPERATURES
    if not lowest <= temperature <= highest:
        raise ValueError(
            f"temperature must be from {lowest:g} to {highest:g}. "
            f"Received: temperature={temperature}. The limit towards 0 is greedy_search."
        )
    if top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(
            "top_k must be 0 or more and top_p in (0, 1]. "
            f"Received: top_k={top_k}, top_p={top_p}. Leave out the one that should not cut."
        )
    # Drawn before the loop: a seed generator inside it leaks a tracer on JAX.
    batch_size = ops.shape(limits)[0]
    uniforms = keras.random.uniform((batch_size, max_length), dtype="float32", seed=seed)

    def draw(logits, step, uniforms):
        logits = logits[:, 0]
        vocab_size = logits.shape[-1]
        ids = ops.broadcast_to(ops.arange(vocab_size, dtype="int32"), ops.shape(logits))
        log_probs = forbid(ops.log_softmax(logits), ids)
        if top_k or top_p < 1:
            log_probs, ids = largest(log_probs, min(top_k or vocab_size, vocab_size))
        best = ops.max(log_probs, axis=-1, keepdims=True)
        weights = ops.exp((log_probs - best) / temperature)  # (B, C)
        weights = ops.where(ids < NUM_FORBIDDEN, 0.0, weights)  # at any temperature
        cumulative = ops.cumsum(weights, axis=-1)
        kept = cumulative - weights < top_p * cumulative[:, -1:]
        total = ops.max(ops.where(kept, cumulative, 0.0), axis=-1, keepdims=True)
        target = ops.take(uniforms, step, axis=1)[:, None] * total
        # the second count: where rounding has made the target the total itself
        drawn = ops.minimum(_count(cumulative <= target), _count(cumulative < total))[:, None]
        return take_entries(ids, drawn)[:, 0], take_entries(log_probs, drawn)[:, 0]

    return follow_single_path(
        step_fn, cache, memory, limits, max_length, length_penalty, draw, [uniforms]
    )


def _count(flags):
    return ops.sum(ops.cast(flags, "int32"), axis=-1)
