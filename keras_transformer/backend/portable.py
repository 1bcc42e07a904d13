"""The hot operations in `keras.ops`: the reference for every backend, and the fallback.

Shapes: L cache length, R rows, N tokens, D width, V vocabulary.
"""

from typing import NamedTuple

import keras
from keras import ops


class TokenLosses(NamedTuple):
    """What training wants to know of the tokens; the logits, hundreds of megabytes, are not kept.

    A gradient flows through `loss` alone.
    """

    loss: object
    """Float32 scalar, the weighted sum of the label-smoothed cross-entropies."""
    cross_entropy: object
    """`(N,)` float32, without label smoothing; nats."""
    correct: object
    """`(N,)` float32, 1 where the label has the highest logit, else 0."""


def dropout(x, rate, seed_generator):
    """Returns `x` with each entry zeroed with probability `rate` and the others scaled up."""
    return keras.random.dropout(x, rate, seed=seed_generator)


def token_cross_entropy(logits, labels, label_smoothing=0.0):
    """Cross-entropy of each token against the smoothed one-hot label, in float32.

    The target distribution is `(1 - label_smoothing) * one_hot(label) + label_smoothing / V`
    (Szegedy et al., 2016, section 7, https://arxiv.org/abs/1512.00567).

    Args:
        logits: `(..., V)`.
        labels: `(...)`, integers in `[0, V)`.
        label_smoothing: the share of the probability that is spread over the vocabulary.
    Returns:
        `(...)` float32, nats.
    """
    logits = ops.cast(logits, "float32")
    normalizer = ops.logsumexp(logits, axis=-1)
    label_logits = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    mean_logits = ops.mean(logits, axis=-1) if label_smoothing else 0.0
    return normalizer - (1.0 - label_smoothing) * label_logits - label_smoothing * mean_logits


def projected_cross_entropy(hidden, table, labels, weights, label_smoothing=0.0, training=False):
    """`token_cross_entropy` of the logits `hidden · table^T`, summed, and what metrics ask for.

    Args:
        hidden: `(N, D)`.
        table: `(V, D)`, the same dtype.
        labels: `(N,)`, integers in `[0, V)`.
        weights: `(N,)` float32, the factor of each token's loss.
        label_smoothing: as of `token_cross_entropy`.
        training: whether a gradient will be wanted.
    Returns:
        `TokenLosses`. Tokens with the label 0 and the weight 0 count nowhere, and may be left out
        of the computation: their entries are then 0.
    """
    logits = ops.matmul(hidden, ops.transpose(table))
    loss = ops.sum(weights * token_cross_entropy(logits, labels, label_smoothing))
    correct = ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels)
    return TokenLosses(loss, token_cross_entropy(logits, labels), ops.cast(correct, "float32"))


def cache_update(cache, step, value):
    """Returns `cache` `(L, R, ...)` with row `step` replaced by `value` `(R, ...)`."""
    at_step = ops.arange(ops.shape(cache)[0]) == step  # (L,)
    at_step = ops.reshape(at_step, (-1,) + (1,) * (len(cache.shape) - 1))
    return ops.where(at_step, value[None], cache)


def cache_prefix(cache, length):
    """Returns the first `length` rows of `cache`, or more where shapes must be static.

    Whoever reads the result masks the rows from `length` on.
    """
    return cache


def compile_function(function, variables=()):
    """Returns `function`, compiled where the backend compiles; tensors in, tensors out.

    Args:
        function: of tensors, each of one rank and dtype in all calls.
        variables: the Keras variables that `function` reads and that change between calls; JAX
            would keep the values of the first call as constants.
    """
    if keras.backend.backend() == "jax":
        import jax

        @jax.jit
        def compiled(values, *tensors):
            with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
                return function(*tensors)

        return lambda *tensors: compiled([variable.value for variable in variables], *tensors)
    if keras.backend.backend() == "torch":
        import torch

        return torch.no_grad()(function)
    return function


def enable_determinism():
    """Makes every later operation give the same bits for the same input."""
    if keras.backend.backend() == "torch":
        import torch

        torch.use_deterministic_algorithms(True)
