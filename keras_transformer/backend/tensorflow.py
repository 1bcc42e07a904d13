"""The hot operations where TensorFlow on a CPU can do better than `keras.ops`.

Shapes: L cache length, R rows, N tokens, D width, C tokens of a chunk, V vocabulary.
"""

import numpy as np
import tensorflow as tf

from keras_transformer.backend import portable
from keras_transformer.backend.portable import TokenLosses

CACHE_GROWTH = 8
"""Fewest positions by which a search's cache grows when it is full."""

CACHE_ROWS = 128
"""Rows times positions by which it grows at least: of few rows, room costs less than growing."""

CHUNK_ROWS = 256
"""Tokens whose logits exist at a time: 10 MB of float32 for 10,000 pieces, which a cache holds."""


REPLICA_STRIDE = 0x3C6EF372
"""Between the dropout seeds of two replicas; any large number that makes their bits others."""


def dropout(x, rate, seed_generator):
    """Dropout that decides each entry by one random byte: a quarter of the random numbers.

    The rate is therefore rounded to a multiple of 1/256; what is kept is scaled by the rounded
    rate, so that the expectation is exact.
    """
    threshold = min(round(rate * 256), 255)  # a rate below 1 keeps something
    size = tf.size(x)
    seed = tf.cast(tf.convert_to_tensor(seed_generator.next()), tf.int32)
    replica = tf.distribute.get_replica_context()  # its copy of the seed is as the others'
    if replica is not None and replica.num_replicas_in_sync > 1:
        seed += tf.stack([REPLICA_STRIDE * replica.replica_id_in_sync_group, 0])
    words = tf.random.stateless_uniform(
        [(size + 3) // 4], seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
    )
    random_bytes = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]
    keep = tf.reshape(random_bytes >= tf.cast(threshold, tf.uint8), tf.shape(x))
    scale = 256.0 / (256 - threshold)
    return x * tf.where(keep, tf.cast(scale, x.dtype), tf.cast(0.0, x.dtype))


def token_cross_entropy(logits, labels, label_smoothing=0.0):
    """As in `portable.py`, with a gradient that keeps no second array of the logits' size."""
    shape = tf.shape(labels)
    vocab_size = logits.shape[-1]

    @tf.custom_gradient
    def flat_cross_entropy(logits, labels):  # (N, V), (N,)
        values = tf.cast(logits, tf.float32)
        normalizer = tf.reduce_logsumexp(values, axis=-1)
        rows = tf.range(tf.shape(labels)[0], dtype=labels.dtype)
        at_labels = tf.stack([rows, labels], axis=-1)
        loss = normalizer - (1.0 - label_smoothing) * tf.gather_nd(values, at_labels)
        if label_smoothing:
            loss -= label_smoothing * tf.reduce_mean(values, axis=-1)

        def gradient(upstream):  # (N,)
            values = tf.cast(logits, tf.float32)
            # upstream * (softmax - smoothed one-hot), with the factor inside the exponential's pass
            result = tf.exp(values - normalizer[:, None]) * upstream[:, None]
            if label_smoothing:
                result -= (label_smoothing / vocab_size) * upstream[:, None]
            result = tf.tensor_scatter_nd_sub(result, at_labels, (1.0 - label_smoothing) * upstream)
            return tf.cast(result, logits.dtype), None

        return loss, gradient

    flat = flat_cross_entropy(tf.reshape(logits, [-1, vocab_size]), tf.reshape(labels, [-1]))
    return tf.reshape(flat, shape)


def projected_cross_entropy(
    hidden, table, labels, weights, label_smoothing=0.0, training=False, jit_compile=False
):
    """As in `portable.py`, by chunks of tokens, and without those that count nowhere.

    The weights are known here, so the gradients are made while a chunk's probabilities are in the
    cache: no array `(N, V)` is ever written to memory. For XLA as in `portable.py`, which knows
    no number of tokens that varies, and on other devices than CPUs, where Keras compiles with it.
    """
    if jit_compile or any(d.device_type != "CPU" for d in tf.config.list_physical_devices()):
        return portable.projected_cross_entropy(
            hidden, table, labels, weights, label_smoothing, training
        )
    num_rows = tf.shape(labels, tf.int64)[0]
    counted = tf.where((labels != 0) | (weights != 0))  # (N', 1)
    labels, weights = tf.gather_nd(labels, counted), tf.gather_nd(weights, counted)

    @tf.custom_gradient
    def of_counted(hidden, table):
        rows = tf.gather_nd(hidden, counted)
        losses, gradients = _by_chunks(rows, table, labels, weights, label_smoothing, training)

        def gradient(upstream, *_):
            # scaled in float32: a loss scale comes too late for what has been rounded before it
            of_rows, of_table = (upstream * x for x in gradients)
            of_rows = tf.cast(of_rows, hidden.dtype)
            of_hidden = tf.scatter_nd(counted, of_rows, tf.shape(hidden, tf.int64))
            return of_hidden, tf.cast(of_table, table.dtype)

        return losses, gradient

    loss, cross_entropy, correct = of_counted(hidden, table)
    cross_entropy, correct = (
        tf.scatter_nd(counted, values, num_rows[None]) for values in (cross_entropy, correct)
    )
    return TokenLosses(loss, cross_entropy, correct)


def _by_chunks(hidden, table, labels, weights, label_smoothing, training):
    """Returns `(loss, cross_entropy, correct)` and the gradients of the loss, or (), a pair.

    With r = 1 - p(label), and q(v) = p(v) / r the distribution of the other tokens, the gradient
    of a token's loss with respect to its logits is, for the label, label_smoothing - r, for
    another token r q(v), and for each label_smoothing / V less. Only q fills a row, and is rounded
    to the dtype of `hidden`. The rest is float32, in which r is exact also for a label that is
    almost sure, where p(label) - 1 would be the small difference of two rounded numbers.
    """
    num_tokens, vocab_size = tf.shape(labels)[0], table.shape[0]
    num_chunks = tf.maximum(1, -(-num_tokens // CHUNK_ROWS))  # of no tokens, one that is empty
    # weights as small as 1 / (tokens of a batch) would leave float16 few bits, or none
    largest_weight = tf.maximum(tf.reduce_max(tf.abs(weights)), float(np.finfo("float32").tiny))
    relative_weights = weights / largest_weight

    def one_chunk(chunk, of_table, *columns):
        start = chunk * CHUNK_ROWS
        end = tf.minimum(start + CHUNK_ROWS, num_tokens)
        x, chunk_labels = hidden[start:end], labels[start:end]
        logits = tf.matmul(x, table, transpose_b=True)  # (C, V)
        label_logits, logits = _without_labels(logits, chunk_labels)
        others = tf.nn.softmax(logits)  # q
        # 16 bits of a float from 0, read as a whole number, have its order and are compared faster
        in_order = tf.bitcast(others, tf.int16) if others.dtype.size == 2 else others
        best = tf.argmax(in_order, axis=-1, output_type=labels.dtype)
        best_logits, best_share = _at(best, logits), _at(best, others)
        log_odds = best_logits - tf.math.log(best_share) - label_logits  # of r against p(label)
        is_first = (label_logits == best_logits) & (chunk_labels < best)
        correct = (label_logits > best_logits) | is_first
        values = [label_logits, log_odds, tf.cast(correct, tf.float32)]
        if training:
            factors = relative_weights[start:end] * tf.sigmoid(log_odds)
            weighted = tf.cast(factors[:, None] * tf.cast(x, tf.float32), x.dtype)
            of_table += tf.cast(tf.matmul(others, weighted, transpose_a=True), tf.float32)
            values.append(tf.matmul(others, table))
        columns = [
            column.write(chunk, value) for column, value in zip(columns, values, strict=True)
        ]
        return chunk + 1, of_table, *columns

    def column(dtype, *shape):
        return tf.TensorArray(dtype, num_chunks, element_shape=[None, *shape], infer_shape=False)

    columns = [column(tf.float32) for _ in range(3)]
    if training:
        columns.append(column(hidden.dtype, hidden.shape[1]))
    _, of_table, *columns = tf.while_loop(
        lambda chunk, *_: chunk < num_chunks,
        one_chunk,
        (0, tf.zeros(table.shape if training else []), *columns),
        parallel_iterations=2,  # what one core leaves over, another takes up
    )
    label_logits, log_odds, correct, *expected = (column.concat() for column in columns)
    cross_entropy = tf.math.softplus(log_odds)
    mean_embedding = tf.reduce_mean(tf.cast(table, tf.float32), axis=0)  # (D,)
    hidden = tf.cast(hidden, tf.float32)
    mean_logits = tf.linalg.matvec(hidden, mean_embedding)
    smoothed = cross_entropy + label_smoothing * (label_logits - mean_logits)
    losses = tf.reduce_sum(weights * smoothed), cross_entropy, correct
    if not training:
        return losses, ()
    rest, weights = tf.sigmoid(log_odds)[:, None], weights[:, None]  # r
    of_labels = tf.cast(tf.gather(table, labels), tf.float32)
    of_hidden = rest * (tf.cast(expected[0], tf.float32) - of_labels)
    of_hidden += label_smoothing * (of_labels - mean_embedding)
    weighted = weights * hidden
    of_table *= largest_weight
    of_table -= (label_smoothing / vocab_size) * tf.reduce_sum(weighted, axis=0)
    of_table = tf.tensor_scatter_nd_add(
        of_table, labels[:, None], (label_smoothing - rest) * weighted
    )
    return losses, (weights * of_hidden, of_table)


def _without_labels(logits, labels):
    """Returns the labels' logits `(C,)` in float32, and `logits` `(C, V)` with the least there.

    In place: a copy takes half as long as the softmax.
    """
    label_logits = _at(labels, logits)
    num_rows, vocab_size = tf.shape(labels)[0], logits.shape[1]
    with tf.control_dependencies([label_logits]):
        least = tf.fill([num_rows, 1], logits.dtype.min)
        places = tf.range(num_rows) * vocab_size + labels
        flat = tf.raw_ops.InplaceUpdate(x=tf.reshape(logits, [-1, 1]), i=places, v=least)
    return label_logits, tf.reshape(flat, [-1, vocab_size])


def _at(ids, values):
    """Returns each row's entry of `values` `(C, V)` at `ids` `(C,)`, in float32."""
    return tf.cast(tf.gather(values, ids, axis=1, batch_dims=1), tf.float32)


def add_bias(x, bias):
    """As in `portable.py`, kept apart: fused with the product it takes twice as long, of few rows.

    TensorFlow fuses what stands side by side; the check of the shape stands between.
    """
    return tf.ensure_shape(x, [None, bias.shape[0]]) + bias


def take_rows(values, indices):
    """As in `portable.py`, in one operation: Keras's own first looks for indices below 0."""
    return tf.gather(values, indices)


def start_cache(num_rows, num_heads, max_length, width, dtype):
    """As in `portable.py`; an operation with state, which no optimization merges with its like."""
    length = tf.minimum(max_length, _growth(num_rows))
    shape = tf.stack([num_rows, num_heads, length, width])
    cache = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True)
    return tf.ensure_shape(cache, [None, num_heads, None, width])


def cache_update(caches, step, values):
    """As in `portable.py`, in place: TensorFlow's scatter copies a loop's variable in each step."""
    num_rows, num_heads, length, _ = tf.unstack(tf.shape(caches[0]))
    places = tf.range(num_rows * num_heads) * length + step
    updated = []
    for cache, value in zip(caches, values, strict=True):
        rows, new_rows = (tf.reshape(x, [-1, x.shape[-1]]) for x in (cache, value))
        rows = tf.raw_ops.InplaceUpdate(x=rows, i=places, v=new_rows)
        updated.append(tf.reshape(rows, tf.shape(cache)))
        updated[-1].set_shape(cache.shape)
    return updated


def search_loop(body, state, cache, memory, num_hypotheses, max_length):
    """As in `portable.py`; what is finished costs nothing, nor what a cache has not yet reached.

    An inner loop takes steps of constant shapes. It ends when the cache is full, or a quarter of
    its sentences is done: then these leave, and the cache grows.
    """

    def unfinished(step, rows, results, state, cache, memory):
        return tf.size(rows) > 0

    def take_steps(step, rows, results, state, cache, memory):
        num_sentences = tf.size(rows)
        room = tf.minimum(max_length, step + _growth(num_sentences * num_hypotheses))
        cache = [_lengthened(tensor, room) for tensor in cache]

        def go_on(step, state, cache):
            num_active = tf.math.count_nonzero(state[0], dtype=tf.int32)
            return (step < room) & (4 * num_active > 3 * num_sentences)

        def advance(step, state, cache):
            return (step + 1, *body(step, state, cache, memory))

        # one step after the other: each writes the cache in place
        start = (step, state, cache)
        step, state, cache = tf.while_loop(go_on, advance, start, parallel_iterations=1)

        results = [
            tf.tensor_scatter_nd_update(result, rows[:, None], tensor)
            for result, tensor in zip(results, state, strict=True)
        ]
        kept = tf.where(state[0])[:, 0]
        kept_rows = kept[:, None] * num_hypotheses + tf.range(num_hypotheses, dtype=kept.dtype)
        return (
            step,
            tf.gather(rows, kept),
            results,
            [tf.gather(tensor, kept) for tensor in state],
            [tf.gather(tensor, tf.reshape(kept_rows, [-1])) for tensor in cache],
            [tf.gather(tensor, kept) for tensor in memory],
        )

    rows = tf.range(tf.shape(state[0], tf.int64)[0])
    start = (0, rows, state, state, cache, memory)
    _, _, results, *_ = tf.while_loop(
        unfinished,
        take_steps,
        start,
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            [result.shape for result in state],
            [_of_any_batch(tensor) for tensor in state],
            [_of_any_length(tensor) for tensor in cache],
            [_of_any_batch(tensor) for tensor in memory],
        ),
    )
    return results


def _growth(num_rows):
    return tf.maximum(CACHE_GROWTH, CACHE_ROWS // tf.maximum(num_rows, 1))


def _lengthened(cache, length):
    """Returns `cache` `(R, H, L, ...)` with room for `length` positions; as it is, if L is 1."""
    if cache.shape[2] == 1:
        return cache
    missing = tf.maximum(length - tf.shape(cache)[2], 0)
    paddings = [[0, 0], [0, 0], [0, missing]] + [[0, 0]] * (len(cache.shape) - 3)
    return tf.pad(cache, paddings)


def _of_any_batch(tensor):
    return tf.TensorShape([None, *tensor.shape[1:]])


def _of_any_length(cache):
    return tf.TensorShape(
        [None, cache.shape[1], 1 if cache.shape[2] == 1 else None, *cache.shape[3:]]
    )


def compile_function(function, variables=()):
    """As in `portable.py`: one graph for all sizes, which reads variables anew in each call."""
    graph = None

    def compiled(*tensors):
        nonlocal graph
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if graph is None:
            signature = [tf.TensorSpec([None] * len(x.shape), x.dtype) for x in tensors]
            graph = tf.function(function, signature, autograph=False)
        return graph(*tensors)

    return compiled


def enable_determinism():
    """Makes every later operation give the same bits for the same input."""
    tf.config.experimental.enable_op_determinism()
