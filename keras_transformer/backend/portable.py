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


def projected_cross_entropy(
    hidden, table, labels, weights, label_smoothing=0.0, training=False, jit_compile=False
):
    """`token_cross_entropy` of the logits `hidden · table^T`, summed, and what metrics ask for.

    Args:
        hidden: `(N, D)`.
        table: `(V, D)`, the same dtype.
        labels: `(N,)`, integers in `[0, V)`.
        weights: `(N,)` float32, the factor of each token's loss.
        label_smoothing: as of `token_cross_entropy`.
        training: whether a gradient will be wanted.
        jit_compile: whether XLA compiles what calls this.
    Returns:
        `TokenLosses`. Tokens with the label 0 and the weight 0 count nowhere, and may be left out
        of the computation: their entries are then 0.
    """
    logits = ops.matmul(hidden, ops.transpose(table))
    loss = ops.sum(weights * token_cross_entropy(logits, labels, label_smoothing))
    correct = ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels)
    return TokenLosses(loss, token_cross_entropy(logits, labels), ops.cast(correct, "float32"))


def add_bias(x, bias):
    """Returns `x` `(R, F)`, a matrix product, plus `bias` `(F,)`."""
    return ops.add(x, bias)


def take_rows(values, indices):
    """Returns `values[indices]`; indices from 0."""
    return ops.take(values, indices, axis=0)


def start_cache(num_rows, num_heads, max_length, width, dtype):
    """Returns `(R, H, L, K)` of zeros for `cache_update`, with L up to `max_length` for now."""
    return ops.zeros((num_rows, num_heads, max_length, width), dtype=dtype)


def cache_update(caches, step, values):
    """Returns caches `(R, H, L, ...)` with the values `(R, H, ...)` at position `step` of L.

    The arguments must not be read any more: a backend may change them in place.
    """
    at_step = (ops.arange(ops.shape(caches[0])[2]) == step)[:, None]
    return [
        ops.where(at_step, value[:, :, None], cache)
        for cache, value in zip(caches, values, strict=True)
    ]


def search_loop(body, state, cache, memory, num_hypotheses, max_length):
    """Calls `body` for step 0, 1, 2 and so on, as long as any sentence is active.

    A backend may leave sentences out that are not active any more, and make a cache longer that
    has become too short.

    Args:
        body: from the step, the state, the cache and the memory to the next state and cache.
            Nothing that is one sentence's may depend on another's.
        state: list of tensors `(B, ...)`; the first, bool `(B,)`, says which sentence is active.
        cache: list of tensors `(B * N, H, L or 1, ...)`, L the most positions that the cache has
            room for; 1, static, of what has no position.
        memory: list of tensors `(B, ...)`, which `body` reads.
        num_hypotheses: N.
        max_length: a number of steps after which no sentence is active.
    Returns:
        The last state, a list.
    """

    def any_active(step, active, *_):
        return ops.any(active)

    def advance(step, *tensors):
        new_state, new_cache = body(
            step, list(tensors[: len(state)]), list(tensors[len(state) :]), memory
        )
        return (step + 1, *new_state, *new_cache)

    start = (ops.convert_to_tensor(0, "int32"), *state, *cache)
    return list(ops.while_loop(any_active, advance, start)[1 : 1 + len(state)])


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
