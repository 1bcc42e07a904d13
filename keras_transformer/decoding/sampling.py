"""Sampling: tokens drawn from the model's distribution, or from its most probable part.

Shapes: B batch (inputs), N hypotheses of each input (1), L maximum output length, C candidates.
"""

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.candidates import forbid, largest
from keras_transformer.decoding.greedy import SingleSearch
from keras_transformer.decoding.hypotheses import DecodingStart, SearchResult
from keras_transformer.decoding.processors import Processor
from keras_transformer.errors import InputError
from keras_transformer.special_ids import OUR_SPECIAL_IDS, SpecialIds
from keras_transformer.types import Tensor

TEMPERATURES = 1e-6, 1e6
"""Lower ones amount to greedy search, higher ones to equal probabilities; float32 overflows."""


def sample(
    step_fn: Callable[..., Any],
    state: Any,
    prompts: Tensor,
    limits: Tensor,
    max_length: Any,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    *,
    seed: Any = None,
    uniforms: Tensor | None = None,
    length_penalty: float = 0.6,
    special_ids: SpecialIds = OUR_SPECIAL_IDS,
    length_normalization: str = "gnmt",
    processors: Sequence[Processor] = (),
) -> SearchResult:
    """Returns one random hypothesis of each input.

    Each token is drawn from `softmax(logits / temperature)`, restricted to the `top_k` most
    probable tokens (Fan et al., 2018, section 5.1, https://arxiv.org/abs/1805.04833), then to the
    smallest set whose probabilities reach `top_p` (Holtzman et al., 2020, eq. 2,
    https://arxiv.org/abs/1904.09751), by inversion of the cumulative distribution.

    Args:
        step_fn, state, prompts, limits, max_length, special_ids: see `greedy_search`.
        length_penalty, length_normalization: see `greedy_search`. The scores use the model's own
            distribution, not the one that was drawn from.
        temperature: from 1e-6 to 1e6; lower values prefer probable tokens more.
        top_k: number of tokens to draw from; 0: all.
        top_p: total probability of the tokens to draw from, in (0, 1].
        seed: int, or a `keras.random.SeedGenerator` for a new draw each call. The same seed, batch
            and `max_length` give the same answer.
        uniforms: instead of a seed, `(B, L)` or more, float32 random numbers in [0, 1), see
            `random_numbers`: one for each token of each input.
        processors: functions that change log-probabilities, see `decoding.processors`; the scores
            are then of what they return.
    Returns:
        `SearchResult` with N = 1.
    Raises:
        ValueError: temperature, top_k or top_p outside its range.
    """
    check_sampling(temperature, top_k, top_p)
    if uniforms is None:  # drawn before the loop: a generator inside it leaks a tracer on JAX
        shape = ops.shape(limits)[0], max_length
        uniforms = keras.random.uniform(shape, dtype="float32", seed=seed)

    start = DecodingStart(step_fn, state, prompts, limits, max_length)
    choose = functools.partial(draw, temperature, top_k, top_p)
    search = SingleSearch(start, special_ids, choose, uniforms, processors)
    return search.run(length_penalty, length_normalization)


def random_numbers(draws, num_columns):
    """Returns float32 `(len(draws), num_columns)`, uniform in [0, 1), as NumPy draws them.

    Args:
        draws: for each row, integers from 0, such as a seed and the number of a text: they alone
            decide its numbers, whatever the other rows are.
    """
    rows = (np.random.default_rng(draw).random(num_columns, "float32") for draw in draws)
    return np.stack(list(rows))


def check_sampling(temperature, top_k, top_p):
    """Raises `ValueError` for an argument of `sample` outside its range.

    Args:
        temperature: None where nothing is drawn; the others are looked at all the same.
    """
    lowest, highest = TEMPERATURES
    if temperature is not None and not lowest <= temperature <= highest:
        raise InputError(
            f"temperature must be from {lowest:g} to {highest:g}. "
            f"Received: temperature={temperature}. The limit towards 0 is greedy search."
        )
    if not isinstance(top_k, numbers.Integral) or top_k < 0 or not 0 < top_p <= 1:
        raise InputError(
            "top_k must be a whole number from 0 on, and top_p in (0, 1]. "
            f"Received: top_k={top_k}, top_p={top_p}. Leave out the one that you do not need."
        )


def draw(temperature, top_k, top_p, logits, place, uniforms, special_ids, are_log_probs):
    """Returns the ids that are drawn and their log-probabilities, each `(B,)`.

    Args:
        temperature, top_k, top_p, special_ids: see `sample`.
        logits, place, are_log_probs: see the `choose` of `SingleSearch`.
        uniforms: its `choices`: `(B, L)`, uniform random numbers in [0, 1).
    """
    logits = logits[:, 0]
    vocab_size, num_forbidden = ops.shape(logits)[-1], special_ids.num_forbidden
    ids = ops.broadcast_to(ops.arange(vocab_size, dtype="int32"), ops.shape(logits))
    log_probs = logits if are_log_probs else ops.log_softmax(logits)
    log_probs = forbid(log_probs, ids, num_forbidden)
    if top_k or top_p < 1:
        num_likely = top_k or vocab_size
        if isinstance(vocab_size, int):
            num_likely = min(num_likely, vocab_size)
        else:
            num_likely = ops.minimum(num_likely, vocab_size)
        log_probs, ids = largest(log_probs, num_likely)
    best = ops.max(log_probs, axis=-1, keepdims=True)
    weights = ops.exp((log_probs - best) / temperature)  # (B, C)
    weights = ops.where(ids < num_forbidden, 0.0, weights)  # also at high temperatures
    cumulative = ops.cumsum(weights, axis=-1)
    kept = cumulative - weights < top_p * cumulative[:, -1:]
    total = ops.max(ops.where(kept, cumulative, 0.0), axis=-1, keepdims=True)
    target = _at_place(uniforms, place)[:, None] * total
    # The second count matters if rounding has made the target equal to the total.
    drawn = ops.minimum(_count(cumulative <= target), _count(cumulative < total))[:, None]
    return backend.batch_gather(ids, drawn)[:, 0], backend.batch_gather(log_probs, drawn)[:, 0]


def _at_place(uniforms, place):
    """Returns `(B,)`, the entries of `uniforms` `(B, L)` at a place, a scalar or `(B,)`."""
    place = ops.convert_to_tensor(place, dtype="int32")
    if len(place.shape) == 0:
        return ops.take(uniforms, place, axis=1)
    # of a row in its prompt, or one that has ended while others go on, no number counts
    place = ops.clip(place, 0, ops.shape(uniforms)[1] - 1)
    return ops.take_along_axis(uniforms, place[:, None], axis=1)[:, 0]


def _count(flags):
    return ops.sum(ops.cast(flags, "int32"), axis=-1)
