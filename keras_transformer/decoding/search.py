"""Decoding with a model: from its inputs to hypotheses.

Shapes: B batch (inputs), S source length, N hypotheses of each input, L maximum output length.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.greedy import SingleSearch, greedy_search, most_probable
from keras_transformer.decoding.hypotheses import DecodingStart, SearchResult
from keras_transformer.decoding.processors import Processor, processors_from_config
from keras_transformer.decoding.sampling import check_sampling, draw, random_numbers, sample
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.errors import check_seed
from keras_transformer.special_ids import OUR_SPECIAL_IDS
from keras_transformer.types import Tensor


def decode(
    model: Any,
    inputs: Tensor,
    config: Any,
    n_best: int = 1,
    weights: Any = None,
    shortlist: Shortlist | None = None,
    processors: Sequence[Processor] = (),
    prefixes: Tensor | None = None,
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
        processors: functions that change log-probabilities, see `decoding.processors`, after those
            that `config` asks for. With a shortlist, ids are places in it.
        prefixes: `(B, P)`, tokens that the outputs continue, for a `TranslationModel`, see
            `start_decoding`; None: nothing.
    Returns:
        `SearchResult`.
    Raises:
        ValueError: n_best above the beam size.
    """
    beam_size = config.beam_size
    arguments = inputs, config.max_length, beam_size, weights
    start: DecodingStart = _start(model, *arguments, shortlist=shortlist, prefixes=prefixes)
    scoring = search_arguments(model, config, processors)
    if beam_size == 1 and n_best == 1:
        found = greedy_search(*start, **scoring)
    else:
        found = beam_search(
            *start, beam_size, n_best=n_best, keep_beam_full=config.keep_beam_full, **scoring
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
    seed: Any = None,
    uniforms: Tensor | None = None,
    shortlist: Shortlist | None = None,
    processors: Sequence[Processor] = (),
    prefixes: Tensor | None = None,
) -> SearchResult:
    """Returns one random output of each input. Like `decode`, with `sample` as the search.

    Args:
        model, inputs, shortlist, processors, prefixes: see `decode`.
        config: `DecodingConfig`; its beam_size has no effect.
        temperature, top_k, top_p, seed, uniforms: see `sample`.
    Returns:
        `SearchResult` with N = 1.
    """
    arguments = inputs, config.max_length, 1, None
    start: DecodingStart = _start(model, *arguments, shortlist=shortlist, prefixes=prefixes)
    scoring = search_arguments(model, config, processors)
    options = temperature, top_k, top_p
    found = sample(*start, *options, seed=seed, uniforms=uniforms, **scoring)
    return _with_ids(found, shortlist)


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

    The tokens are those that `BatchSearch` finds for this input alone, with the same seed. Each
    takes one step of the model with its cache, outside of any compiled function.

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
    check_sampling(temperature, top_k, top_p)
    check_seed(seed)
    return _tokens(model, inputs, max_length, temperature, top_k, top_p, seed)


def _tokens(model, inputs, max_length, temperature, top_k, top_p, seed):
    start = backend.without_gradients(model.start_decoding)(inputs, max_length)
    choose, choices = most_probable, ()
    if temperature is not None:
        choose = functools.partial(draw, temperature, top_k, top_p)
        choices = ops.convert_to_tensor(random_numbers([(seed, 0)], max_length))
    search = SingleSearch(start, special_ids_of(model), choose, choices)
    append, prompt_steps = backend.without_gradients(search.append), search.prompts.last_step()
    for step, hypothesis in search.one_by_one(append, search.start()):
        if step >= prompt_steps:
            yield int(hypothesis.tokens[0, 0])


def _start(model, *arguments, **options):
    """Returns the `DecodingStart` of a model; not every model has shortlists and prefixes."""
    given = {name: value for name, value in options.items() if value is not None}
    return model.start_decoding(*arguments, **given)


def search_arguments(model, config, processors=()):
    """Returns the arguments that all searches have in common, see `decode`."""
    special_ids = special_ids_of(model)
    return dict(
        length_penalty=config.length_penalty,
        length_normalization=config.length_normalization,
        special_ids=special_ids,
        processors=[*processors_from_config(config, special_ids), *processors],
    )


def _with_ids(found, shortlist):
    """Returns the `SearchResult` of a search that worked with places in the shortlist, if any."""
    return found if shortlist is None else found._replace(ids=shortlist.tokens(found.ids))


def special_ids_of(model):
    """Returns the `SpecialIds` of a model's vocabulary, by default those of our tokenizers."""
    return getattr(model, "special_ids", OUR_SPECIAL_IDS)
