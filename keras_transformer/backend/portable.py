"""The performance-critical operations in `keras.ops`: the reference, and the fallback.

Shapes: B batch (inputs), L cache length, R rows, H heads, K width of a head, D and F widths, V
vocabulary; N tokens in losses, hypotheses of each input in searches.
"""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.types import Tensor


class TokenLosses(NamedTuple):
    """The loss and what metrics need, instead of the logits, which take hundreds of megabytes.

    Gradients flow only through `loss`.
    """

    loss: Tensor
    """Float32 scalar, the weighted sum of the label-smoothed cross-entropies."""
    cross_entropy: Tensor
    """`(N,)` float32, without label smoothing; nats."""
    correct: Tensor
    """`(N,)` float32, 1 where the label has the highest logit, else 0."""


def dropout(x, rate, seed_generator):
    """Returns `x` with each entry zeroed with probability `rate` and the others scaled up."""
    return keras.random.dropout(x, rate, seed=seed_generator)


def token_cross_entropy(logits, labels, label_smoothing=0.0):
    """Returns the cross-entropy of each token with its smoothed one-hot label, in float32.

    The target distribution is `(1 - label_smoothing) * one_hot(label) + label_smoothing / V`
    (Szegedy et al., 2016, section 7, https://arxiv.org/abs/1512.00567).

    Args:
        logits: `(..., V)`.
        labels: `(...)`, integers in `[0, V)`.
        label_smoothing: probability that is spread evenly over the vocabulary.
    Returns:
        `(...)` float32, nats.
    """
    logits = ops.cast(logits, "float32")
    normalizer = ops.logsumexp(logits, axis=-1)
    label_logits = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    mean_logits = ops.mean(logits, axis=-1) if label_smoothing else 0.0
    return normalizer - (1.0 - label_smoothing) * label_logits - label_smoothing * mean_logits


def projected_cross_entropy(
    hidden,
    table,
    labels,
    weights,
    label_smoothing=0.0,
    training=False,
    jit_compile=False,
    r_drop=0.0,
):
    """Returns the summed `token_cross_entropy` of the logits `hidden · table^T`, and more.

    Args:
        hidden: `(N, D)`.
        table: `(V, D)`, the same dtype.
        labels: `(N,)`, integers in `[0, V)`.
        weights: `(N,)` float32, the factor of each token's loss.
        label_smoothing: see `token_cross_entropy`.
        training: whether gradients will be computed.
        jit_compile: whether XLA compiles the caller.
        r_drop: factor of the divergence between the two predictions of a token, which is added to
            the loss in training. Rows 2 i and 2 i + 1 are then the same token with different
            dropout, with the same label and weight.
    Returns:
        `TokenLosses`. A backend may skip tokens with label 0 and weight 0, which affect neither
        loss nor metrics; their entries are then 0.
    """
    logits = ops.matmul(hidden, ops.transpose(table))
    loss = ops.sum(weights * token_cross_entropy(logits, labels, label_smoothing))
    if r_drop:
        loss += r_drop * ops.sum(weights[::2] * _mean_divergence(logits[::2], logits[1::2]))
    correct = ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels)
    return TokenLosses(loss, token_cross_entropy(logits, labels), ops.cast(correct, "float32"))


def _mean_divergence(logits, other_logits):
    """Returns (KL(p || q) + KL(q || p)) / 2 of the distributions of logits, `(N,)` float32."""
    logits, other_logits = ops.cast(logits, "float32"), ops.cast(other_logits, "float32")
    difference = ops.softmax(logits) - ops.softmax(other_logits)
    # the normalizers of log p and log q cancel, because the differences sum to 0
    return 0.5 * ops.sum(difference * (logits - other_logits), axis=-1)


def ensure_shape(x, shape):
    """Returns `x`, whose shape must be `shape` with any size for None; callers check known sizes.

    On TensorFlow a size may be unknown until the graph runs, which then fails if it differs.
    """
    return x  # all sizes are known


def add_bias(x, bias):
    """Returns `x` `(R, F)`, a matrix product, plus `bias` `(F,)`."""
    return ops.add(x, bias)


def take_rows(values, indices):
    """Returns `values[indices]`; the indices must not be negative."""
    rows = ops.take(values, indices, axis=0)
    # without any row, Keras's `take` on JAX returns another shape
    return ops.reshape(rows, (*ops.shape(indices), *ops.shape(values)[1:]))


def batch_gather(values, indices):
    """Returns `(R, M, ...)`, the entries `indices` `(R, M)` of each row of `values` `(R, C, ...)`.

    A single gather, while `ops.take_along_axis` is several operations.

    Args:
        indices: from 0 to C - 1.
    """
    num_entries = ops.shape(values)[1]
    row_starts = ops.arange(ops.shape(values)[0], dtype="int32")[:, None] * num_entries
    flat_values = ops.reshape(values, (-1, *ops.shape(values)[2:]))
    return take_rows(flat_values, indices + row_starts)


def start_cache(num_rows, num_heads, max_length, width, dtype):
    """Returns zeros `(R, H, L, K)` for `cache_update`; L is at most `max_length` and may grow."""
    return ops.zeros((num_rows, num_heads, max_length, width), dtype=dtype)


def cache_position(cache, step):
    """Returns where caches of the shape of `cache` `(R, H, L, ...)` have position `step`."""
    return (ops.arange(ops.shape(cache)[2]) == step)[:, None]


def cache_update(caches, position, values):
    """Returns caches `(R, H, L, ...)` with the values `(R, H, ...)` written to one position.

    Callers must not read the arguments afterwards: a backend may change them in place.

    Args:
        caches: list of caches with the same R, H and L.
        position: from `cache_position`.
        values: list of as many values.
    """
    return [
        ops.where(position, value[:, :, None], cache)
        for cache, value in zip(caches, values, strict=True)
    ]


def extend_cache(cache, step):
    """Returns nested caches `(R, H, L, ...)` that have position `step`, an int.

    For loops outside of `search_loop`, which lengthens its caches itself.
    """
    return cache  # as long as it will ever be


def search_loop(body, state, cache, memory, num_hypotheses, max_length):
    """Calls `body` for step 0, 1, 2 and so on, until the search has ended for every input.

    A backend may drop inputs whose search has ended, and lengthen a cache that is full.

    Args:
        body: function of the step, the state, the cache and the memory. Returns the next state and
            cache. Inputs must not depend on one another.
        state: named tuple of tensors `(B, ...)`. Its field `active`, bool `(B,)`, says for which
            inputs the search goes on.
        cache: nested tensors `(B * N, H, L or 1, ...)`, where L is the number of positions that the
            cache can hold; a static 1 if the tensor has no positions. Tensors of rank 1 or 2
            have no positions either.
        memory: nested tensors `(B, ...)`, which `body` reads.
        num_hypotheses: N.
        max_length: number of steps after which every search has ended.
    Returns:
        The final state.
    """

    def advance(step, state, cache):
        return (step + 1, *body(step, state, cache, memory))

    start = (ops.convert_to_tensor(0, "int32"), state, cache)
    return ops.while_loop(lambda step, state, cache: ops.any(state.active), advance, start)[1]


def scan(step, carry, inputs):
    """Calls `step` for each position of the inputs, and stacks what it returns.

    Args:
        step: function of the carry and the inputs `(...)` of one position. Returns the next carry,
            of the same shapes, and the nested outputs of this position.
        carry: nested tensors before the first step.
        inputs: nested tensors `(T, ...)`.
    Returns:
        The last carry, and the outputs `(T, ...)`.
    """
    if keras.tree.flatten(inputs)[0].shape[0] == 0:
        return carry, _no_outputs(step, carry, inputs)
    return ops.scan(step, carry, inputs)


def gradients(function, variables):
    """Returns the gradients of `function()`, a scalar, as NumPy arrays; None where there is none.

    Args:
        function: function without arguments that calls a model.
        variables: Keras variables.
    """
    values = [variable.value for variable in variables]
    if keras.backend.backend() == "torch":
        import torch

        found = torch.autograd.grad(function(), values, allow_unused=True)
    else:
        import jax

        def of_values(values):
            with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
                return function()

        found = jax.jit(jax.grad(of_values))(values)
    return [None if each is None else ops.convert_to_numpy(each) for each in found]


def linear_recurrence(decay, added):
    """Returns c with c_t = decay_t c_{t-1} + added_t and c before the first position 0.

    Args:
        decay, added: `(B, T, D)`.
    """
    # The associative scan of PyTorch makes its arrays on the CPU. That of JAX needs a known length,
    # which a functional model does not have while it is made.
    if keras.backend.backend() == "torch" or not isinstance(decay.shape[1], int):
        return recurrence_in_order(scan, decay, added)

    def both(first, second):
        return first[0] * second[0], second[0] * first[1] + second[1]

    return ops.associative_scan(both, (decay, added), axis=1)[1]


def recurrence_in_order(scan, decay, added):
    """Does what `linear_recurrence` does, position by position, with the `scan` of a backend."""

    def step(state, inputs):
        state = inputs[0] * state + inputs[1]
        return state, state

    decay, added = (ops.transpose(x, (1, 0, 2)) for x in (decay, added))
    _, states = scan(step, ops.zeros(ops.shape(added)[1:], added.dtype), (decay, added))
    return ops.transpose(states, (1, 0, 2))


def _no_outputs(step, carry, inputs):
    """Returns the outputs of no step, `(0, ...)`, whose shapes `ops.scan` may not know."""
    zeros = keras.tree.map_structure(lambda x: ops.zeros(x.shape[1:], x.dtype), inputs)
    _, outputs = step(carry, zeros)
    return keras.tree.map_structure(lambda x: x[None][:0], outputs)


def compile_function(function, variables=()):
    """Returns `function`, compiled if the backend can compile.

    Args:
        function: function from tensors to tensors. Each argument has the same rank and dtype in all
            calls.
        variables: the Keras variables that `function` reads and that change between calls. JAX
            would otherwise keep their values in the first call as constants.
    """
    if keras.backend.backend() == "jax":
        import jax

        @jax.jit
        def compiled(values, *tensors):
            with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
                return function(*tensors)

        return lambda *tensors: compiled([variable.value for variable in variables], *tensors)
    return without_gradients(function)


def without_gradients(function):
    """Returns the function, which records no operations for a gradient. PyTorch alone would."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.no_grad()(function)
    return function


def enable_determinism():
    """Makes all later operations deterministic: the same input gives the same bits."""
    if keras.backend.backend() == "torch":
        import torch

        torch.use_deterministic_algorithms(True)


def seed_step(seed, step):
    """Lets the dropout of a training's step follow from its seed and the number of the step alone.

    Elsewhere the states of dropout are variables, which a checkpoint holds. Keras's dropout on
    PyTorch draws from PyTorch's own generator, which on a GPU need not wait for a variable.
    """
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed(np.random.SeedSequence([seed, step]).generate_state(1)[0].item())


def num_search_threads():
    """Returns the number of threads that share the batches of a search.

    One, unless a backend says otherwise: JAX runs a batch on all cores, and PyTorch's searches hold
    Python's lock.
    """
    return 1


def one_thread_per_operation():
    """Computes each operation in one thread, where that is better for searches in many threads.

    Call it before the first operation.
    """
