"""Streaming: the tokens of one output, each as soon as it is chosen.

Shapes: P prompt length, L maximum output length.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.greedy import SingleSearch, most_probable
from keras_transformer.decoding.hypotheses import last_prompt_step
from keras_transformer.decoding.sampling import check_sampling, sampler
from keras_transformer.decoding.search import special_ids_of
from keras_transformer.errors import check_seed
from keras_transformer.types import Tensor


def stream(
    model: Any,
    inputs: Tensor,
    max_length: int,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    *,
    seed: int = 0,
) -> Iterator[int]:
    """Returns an iterator over the tokens of one output, including the end token.

    The tokens are those that `greedy_search` or `sample` would return for a batch of one, with the
    same seed. Each takes one step of the model with its cache, outside of any compiled function.

    Args:
        model, inputs: see `decode`; one input.
        max_length: L, maximum tokens of the output, including the end token.
        temperature: see `sample`; None: the most probable token at every step.
        top_k, top_p, seed: see `sample`.
    Returns:
        Iterator of ints.
    Raises:
        ValueError: an argument outside its range.
    """
    if temperature is not None:
        check_sampling(temperature, top_k, top_p)
        check_seed(seed)
    return _tokens(model, inputs, max_length, temperature, top_k, top_p, seed)


def _tokens(model, inputs, max_length, temperature, top_k, top_p, seed):
    special_ids = special_ids_of(model)
    start_decoding = backend.without_gradients(model.start_decoding)
    step_fn, state, prompts, limits, max_length = start_decoding(inputs, max_length)
    choose, choices = most_probable, ()
    if temperature is not None:
        choose = sampler(temperature, top_k, top_p)
        choices = keras.random.uniform((1, max_length), dtype="float32", seed=seed)
    search = SingleSearch(
        step_fn, prompts, limits, max_length, choose, choices, special_ids=special_ids
    )
    append = backend.without_gradients(search.append)
    hypothesis, cache, memory = search.start(), state.cache, search.memory(state)
    prompt_steps = last_prompt_step(prompts, special_ids.pad)
    for step in itertools.count():
        if not hypothesis.active[0]:
            return
        cache = backend.extend_cache(cache, step)
        place = ops.convert_to_tensor(step, dtype="int32")
        hypothesis, cache = append(place, hypothesis, cache, memory)
        if step >= prompt_steps:
            yield int(hypothesis.tokens[0, 0])
