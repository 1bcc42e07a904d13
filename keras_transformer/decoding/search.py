"""Decoding with a model: from its inputs to hypotheses.

Shapes: B batch (inputs), S source length, P prompt length, N hypotheses of each input, L maximum
output length.
"""

from typing import Any, NamedTuple

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.hypotheses import SearchResult
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.special_ids import OUR_SPECIAL_IDS
from keras_transformer.types import Tensor


class DecodingStart(NamedTuple):
    """The first arguments of a search; `start_decoding` of a model returns them."""

    step_fn: Any
    """Function of the previous tokens `(B, N)`, the step and the state, see `beam_search`."""
    state: Any
    """`DecodingState` before the first step."""
    prompts: Any
    """`(B, P)` int32, the tokens that each output continues, padded at the end."""
    limits: Any
    """`(B,)` int32, maximum tokens of each output, including the end token, without the prompt."""
    max_length: Any
    """L, at least as large as every limit: an int, or on TensorFlow an int scalar."""


def decode(
    model: Any,
    inputs: Tensor,
    config: Any,
    n_best: int = 1,
    weights: Any = None,
    shortlist: Shortlist | None = None,
) -> SearchResult:
    """Returns the most probable outputs, by beam search or, with one beam, greedy search.

    A pure function of tensors: it works eagerly and within a compiled function, for any shape.

    Args:
        model: any model with a `start_decoding(inputs, max_length, num_hypotheses, weights)` that
            returns a `DecodingStart`, such as `Transformer`. If its vocabulary has other special
            ids than our tokenizers, it has an attribute `special_ids`.
        inputs: the inputs of `start_decoding`, such as source ids `(B, S)`.
        config: `DecodingConfig`.
        n_best: N, hypotheses to return, at most `config.beam_size`.
        weights: from `model.decoding_weights()`, if they are kept for many calls; None: computed.
        shortlist: the tokens to choose from, for a `TranslationModel`; None: all tokens. Scores are
            then of the softmax over the shortlist.
    Returns:
        `SearchResult`.
    Raises:
        ValueError: n_best above the beam size.
    """
    start: DecodingStart = _start(
        model, inputs, config.max_length, config.beam_size, weights, shortlist
    )
    if config.beam_size == 1 and n_best == 1:
        found = greedy_search(
            *start, config.length_penalty, special_ids_of(model), config.length_normalization
        )
    else:
        found = beam_search(
            *start,
            config.beam_size,
            config.length_penalty,
            n_best,
            special_ids_of(model),
            config.length_normalization,
            config.keep_beam_full,
        )
    return _with_ids(found, shortlist)


def decode_sampled(
    model: Any,
    inputs: Tensor,
    config: Any,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    *,
    seed: Any,
    shortlist: Shortlist | None = None,
) -> SearchResult:
    """Returns one random output of each input. Like `decode`, with `sample` as the search.

    Args:
        model, inputs, shortlist: see `decode`.
        config: `DecodingConfig`; its beam_size has no effect.
        temperature, top_k, top_p, seed: see `sample`.
    Returns:
        `SearchResult` with N = 1.
    """
    start: DecodingStart = _start(model, inputs, config.max_length, 1, None, shortlist)
    found = sample(
        *start,
        temperature,
        top_k,
        top_p,
        seed=seed,
        length_penalty=config.length_penalty,
        special_ids=special_ids_of(model),
        length_normalization=config.length_normalization,
    )
    return _with_ids(found, shortlist)


def _start(model, inputs, max_length, num_hypotheses, weights, shortlist):
    """Returns the `DecodingStart` of a model; not every model has shortlists."""
    arguments = inputs, max_length, num_hypotheses, weights
    if shortlist is None:
        return model.start_decoding(*arguments)
    return model.start_decoding(*arguments, shortlist)


def _with_ids(found, shortlist):
    """Returns the `SearchResult` of a search that worked with places in the shortlist, if any."""
    return found if shortlist is None else found._replace(ids=shortlist.tokens(found.ids))


def special_ids_of(model):
    """Returns the `SpecialIds` of a model's vocabulary, by default those of our tokenizers."""
    return getattr(model, "special_ids", OUR_SPECIAL_IDS)
