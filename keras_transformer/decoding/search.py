"""Decoding with a model: from source ids to hypotheses.

Shapes: B batch (sentences), S source length, N hypotheses a sentence, L maximum output length.
"""

from keras import ops

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.sampling import sample
from keras_transformer.special_ids import END_ID, PAD_ID


def decode(model, source_ids, config, n_best=1, weights=None):
    """Returns the most probable translations, by beam search or, with one beam, greedy search.

    A pure function of tensors: works eagerly and within a compiled function, of any B and S.

    Args:
        model: `Transformer`, or any model with its `start_decoding`.
        source_ids: `(B, S)`, integers, ended by the end token, padded with 0.
        config: `DecodingConfig`.
        n_best: N, hypotheses to return, at most `config.beam_size`.
        weights: of `model.decoding_weights()`, where they are kept for many calls.
    Returns:
        `SearchResult`. A sentence of s pieces has at most min(config.max_length, 2 s + 10), and
        L = min(config.max_length, 2 S + 10).
    Raises:
        ValueError: n_best above the beam size.
    """
    if config.beam_size == 1 and n_best == 1:
        return greedy_search(*_start(model, source_ids, config, 1, weights), config.length_penalty)
    start = _start(model, source_ids, config, config.beam_size, weights)
    return beam_search(*start, config.beam_size, config.length_penalty, n_best)


def decode_sampled(model, source_ids, config, temperature=1.0, top_k=0, top_p=1.0, *, seed):
    """Returns one random translation a sentence: `decode`, with `sample` in the search's place.

    Args:
        model, source_ids: as of `decode`.
        config: `DecodingConfig`; beam_size has no effect.
        temperature, top_k, top_p, seed: as of `sample`.
    Returns:
        `SearchResult` with N = 1.
    """
    return sample(
        *_start(model, source_ids, config),
        temperature,
        top_k,
        top_p,
        seed=seed,
        length_penalty=config.length_penalty,
    )


def _start(model, source_ids, config, num_hypotheses=1, weights=None):
    """Returns `(step_fn, cache, memory, limits, max_length)`, what every search begins with."""
    source_ids = ops.cast(source_ids, "int32")
    pieces = ops.not_equal(source_ids, PAD_ID) & ops.not_equal(source_ids, END_ID)
    limits = 2 * ops.sum(ops.cast(pieces, "int32"), axis=1) + 10
    limits = ops.minimum(limits, config.max_length)
    max_length = longest_output(source_ids, config)
    step_fn, memory, cache = model.start_decoding(source_ids, max_length, num_hypotheses, weights)
    return step_fn, cache, memory, limits, max_length


def longest_output(source_ids, config):
    """Returns L, the length of the ids that `decode` finds: an int where S is known in tracing."""
    width = 2 * ops.shape(source_ids)[1] + 10  # not from the limits: JAX needs it while it traces
    if isinstance(width, int):
        return min(width, config.max_length)
    return ops.minimum(width, config.max_length)
