"""Streaming: the tokens of one output, each as soon as it is chosen.

Shapes: P prompt length, L maximum output length.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.greedy import most_probable
from keras_transformer.decoding.sampling import check_sampling, draw
from keras_transformer.decoding.search import special_ids_of
from keras_transformer.layers.positive_integers import check_seed
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
    step_fn = backend.without_gradients(step_fn)
    prompt = [i for i in ops.convert_to_numpy(prompts)[0].tolist() if i != special_ids.pad]
    if temperature is not None:
        uniforms = keras.random.uniform((1, max_length), dtype="float32", seed=seed)
    token, place = prompt[:1], 0  # the next place in the output
    limit = int(limits[0])
    for step in itertools.count():
        if place == limit:
            return
        state = state._replace(cache=backend.with_room(state.cache, step))
        ids = ops.convert_to_tensor([token], dtype="int32")
        logits, state = step_fn(ids, ops.convert_to_tensor(step, dtype="int32"), state)
        if step + 1 < len(prompt):
            token = prompt[step + 1 : step + 2]
            continue
        if temperature is None:
            chosen, _ = most_probable(logits, special_ids)
        else:
            options = temperature, top_k, top_p, special_ids
            chosen, _ = draw(logits, uniforms[:, place], *options)
        token, place = [int(chosen[0])], place + 1
        yield token[0]
        if token[0] == special_ids.end:
            return
