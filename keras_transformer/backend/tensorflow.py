"""The performance-critical operations for which TensorFlow on a CPU is faster than `keras.ops`.

Shapes: L cache length, R rows, H heads, N tokens, N' tokens that are not skipped, D width, C
tokens per chunk, V vocabulary.
"""

import contextlib

import numpy as np
import tensorflow as tf

from keras_transformer.backend import portable
from keras_transformer.backend.parallel_calls import first_call_locked
from keras_transformer.backend.portable import TokenLosses
from keras_transformer.config.settings import NUM_CORES

CACHE_GROWTH = 8
"""Minimum number of positions by which a search's cache grows when it is full."""

CACHE_ROWS = 64
"""Minimum rows times positions by which it grows: for few rows, space costs less than growing."""

CHUNK_ROWS = 256
"""Tokens whose logits exist at a time: 10 MB of float32 if V is 10,000, which a cache can hold."""

REPLICA_STRIDE = 0x3C6EF372
"""Difference between the dropout seeds of two replicas; any large number makes the bits differ."""

MAX_ROUNDING = 0.02
"""Largest relative error of a dropout rate that is rounded to a random byte."""


def dropout(x, rate, seed_generator):
    """Dropout that needs one random byte per entry, a quarter of the usual random numbers.

    The rate is therefore rounded to a multiple of 1/256, unless that changes the share of what is
    dropped or kept by more than 2 %, as for rates near 0 and 1: then each entry has 32 bits. The
    entries that are kept are scaled by the rounded rate, so that the expectation is exact.
    """
    threshold, size = round(rate * 256), tf.size(x)
    has_byte = abs(threshold / 256 - rate) <= MAX_ROUNDING * min(rate, 1 - rate)
    seed = tf.cast(tf.convert_to_tensor(seed_generator.next()), tf.int32)
    replica = tf.distribute.get_replica_context()  # all replicas have the same seed
    if replica is not None and replica.num_replicas_in_sync > 1:
        seed += tf.stack([REPLICA_STRIDE * replica.replica_id_in_sync_group, 0])
    num_words = (size + 3) // 4 if has_byte else size
    words = tf.random.stateless_uniform(
        [num_words], seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
    )
    if has_byte:
        random_bytes = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]
        keep = random_bytes >= tf.cast(threshold, tf.uint8)
        scale = 256.0 / (256 - threshold)
    else:
        keep = words >= min(round(rate * 2**32) - 2**31, 2**31 - 1)
        scale = 1.0 / (1.0 - rate)
    keep = tf.reshape(keep, tf.shape(x))
    return x * tf.where(keep, tf.cast(scale, x.dtype), tf.cast(0.0, x.dtype))


def token_cross_entropy(logits, labels, label_smoothing=0.0):
    """As in `portable.py`; the gradient needs no second array of the logits' size in memory."""
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
            # upstream * (softmax - smoothed one-hot), multiplied in the pass that takes the exp
            result = tf.exp(values - normalizer[:, None]) * upstream[:, None]
            if label_smoothing:
                result -= (label_smoothing / vocab_size) * upstream[:, None]
            result = tf.tensor_scatter_nd_sub(result, at_labels, (1.0 - label_smoothing) * upstream)
            return tf.cast(result, logits.dtype), None

        return loss, gradient

    flat = flat_cross_entropy(tf.reshape(logits, [-1, vocab_size]), tf.reshape(labels, [-1]))
    return tf.reshape(flat, shape)


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
    """As in `portable.py`, in chunks of tokens, and without tokens of label 0 and weight 0.

    The weights are known here, so the gradients are computed while a chunk's probabilities are in
    the cache: no array `(N, V)` is ever written to memory. `portable.py` is used with XLA, which
    needs a static number of tokens, and on devices other than CPUs, where Keras compiles with XLA.
    """
    if jit_compile or _has_accelerator():
        return portable.projected_cross_entropy(
            hidden, table, labels, weights, label_smoothing, training, r_drop=r_drop
        )
    num_rows = tf.shape(labels, tf.int64)[0]
    counted = tf.where((labels != 0) | (weights != 0))  # (N', 1)
    labels, weights = tf.gather_nd(labels, counted), tf.gather_nd(weights, counted)

    @tf.custom_gradient
    def counted_losses(hidden, table):
        rows = tf.gather_nd(hidden, counted)
        losses, gradients = _by_chunks(
            rows, table, labels, weights, label_smoothing, training, r_drop
        )

        def gradient(upstream, *_):
            # In float32: values that are rounded before the loss scale is applied are lost.
            row_gradient, table_gradient = (upstream * x for x in gradients)
            row_gradient = tf.cast(row_gradient, hidden.dtype)
            hidden_gradient = tf.scatter_nd(counted, row_gradient, tf.shape(hidden, tf.int64))
            return hidden_gradient, tf.cast(table_gradient, table.dtype)

        return losses, gradient

    loss, cross_entropy, correct = counted_losses(hidden, table)
    cross_entropy, correct = (
        tf.scatter_nd(counted, values, num_rows[None]) for values in (cross_entropy, correct)
    )
    return TokenLosses(loss, cross_entropy, correct)


def _by_chunks(hidden, table, labels, weights, label_smoothing, training, r_drop):
    """Returns the pair of `(loss, cross_entropy, correct)` and the gradients of the loss.

    The gradients are () unless training. Let r = 1 - p(label), and let q(v) = p(v) / r be the
    distribution of the other tokens. The gradient of a token's loss with respect to its logits is
    label_smoothing - r for the label and r q(v) for another token, minus label_smoothing / V for
    each. Only q fills a row, and is rounded to the dtype of `hidden`. The rest is float32, in which
    r is precise even if p(label) is almost 1, where p(label) - 1 would be the small difference of
    two rounded numbers. R-Drop adds to both, see `_divergence`.
    """
    num_tokens, vocab_size = tf.shape(labels)[0], table.shape[0]
    num_chunks = tf.maximum(1, -(-num_tokens // CHUNK_ROWS))  # without tokens, one empty chunk
    # Weights as small as 1 / (tokens in a batch) would leave few bits of float16, or none.
    largest_weight = tf.maximum(tf.reduce_max(tf.abs(weights)), float(np.finfo("float32").tiny))
    relative_weights = weights / largest_weight

    def one_chunk(chunk, table_gradient, *columns):
        start = chunk * CHUNK_ROWS
        end = tf.minimum(start + CHUNK_ROWS, num_tokens)
        of_chunk = [values[start:end] for values in (hidden, labels, relative_weights)]
        if r_drop:
            of_chunk = [_firsts_before_seconds(values) for values in of_chunk]
        x, chunk_labels, chunk_weights = of_chunk
        logits = tf.matmul(x, table, transpose_b=True)  # (C, V)
        label_logits, logits = _without_labels(logits, chunk_labels)
        others = tf.nn.softmax(logits)  # q
        # Read as integers, non-negative 16-bit floats have the same order, and compare faster.
        in_order = tf.bitcast(others, tf.int16) if others.dtype.size == 2 else others
        best = tf.argmax(in_order, axis=-1, output_type=labels.dtype)
        best_logits, best_share = _at(best, logits), _at(best, others)
        log_odds = best_logits - tf.math.log(best_share) - label_logits  # log(r / p(label))
        is_first = (label_logits == best_logits) & (chunk_labels < best)
        correct = (label_logits > best_logits) | is_first
        values = [label_logits, log_odds, tf.cast(correct, tf.float32)]
        if training:
            rest = tf.sigmoid(log_odds)  # r
            if r_drop:
                divergence, of_label, of_others = _divergence(
                    logits, label_logits, others, rest, r_drop
                )
                values.append(divergence)
                scale = tf.ones_like(rest)
            else:
                of_label, of_others, scale = -rest, others, rest
            weighted = tf.cast((chunk_weights * scale)[:, None] * tf.cast(x, tf.float32), x.dtype)
            table_gradient += tf.cast(tf.matmul(of_others, weighted, transpose_a=True), tf.float32)
            product = tf.cast(tf.matmul(of_others, table), tf.float32)
            values += [of_label, scale[:, None] * product]
        if r_drop:
            values = [_pairs_together(value) for value in values]
        columns = [
            column.write(chunk, value) for column, value in zip(columns, values, strict=True)
        ]
        return chunk + 1, table_gradient, *columns

    def column(dtype, *shape):
        return tf.TensorArray(dtype, num_chunks, element_shape=[None, *shape], infer_shape=False)

    num_columns = 3 + training * (2 if r_drop else 1)
    columns = [column(tf.float32) for _ in range(num_columns)]
    if training:
        columns.append(column(tf.float32, hidden.shape[1]))
    _, table_gradient, *columns = tf.while_loop(
        lambda chunk, *_: chunk < num_chunks,
        one_chunk,
        (0, tf.zeros(table.shape if training else []), *columns),
        parallel_iterations=2,  # cores that one chunk leaves idle work on the next
    )
    label_logits, log_odds, correct, *of_gradient = (column.concat() for column in columns)
    cross_entropy = tf.math.softplus(log_odds)
    mean_embedding = tf.reduce_mean(tf.cast(table, tf.float32), axis=0)  # (D,)
    hidden = tf.cast(hidden, tf.float32)
    mean_logits = tf.linalg.matvec(hidden, mean_embedding)
    smoothed = cross_entropy + label_smoothing * (label_logits - mean_logits)
    loss = tf.reduce_sum(weights * smoothed)
    if not training:
        return (loss, cross_entropy, correct), ()
    *divergence, of_label, hidden_gradient = of_gradient
    if r_drop:
        loss += tf.reduce_sum(weights * divergence[0])
    of_label, weights = label_smoothing + of_label[:, None], weights[:, None]
    hidden_gradient += of_label * tf.cast(tf.gather(table, labels), tf.float32)
    hidden_gradient -= label_smoothing * mean_embedding
    weighted = weights * hidden
    table_gradient *= largest_weight
    table_gradient -= (label_smoothing / vocab_size) * tf.reduce_sum(weighted, axis=0)
    table_gradient = tf.tensor_scatter_nd_add(table_gradient, labels[:, None], of_label * weighted)
    return (loss, cross_entropy, correct), (weights * hidden_gradient, table_gradient)


def _divergence(logits, label_logits, others, rest, r_drop):
    """Returns what R-Drop adds to the losses of a chunk, and the gradients with respect to logits.

    The chunk has the first predictions of C / 2 tokens, then their second predictions. With
    d = logits of the first - logits of the second, and m_i the mean of d by the distribution p_i,
    the mean of both divergences is (m_1 - m_2) / 2. Its gradient with respect to the logits of the
    first is (p_1 (d - m_1 + 1) - p_2) / 2; that of the second has the indices exchanged and -d.

    Args:
        logits, others: `(C, V)`, where the label has the lowest logit and no share.
        label_logits, rest: `(C,)` float32; p(label) is 1 - rest.
        r_drop: factor of the divergence.
    Returns:
        `(C,)` half of the pair's divergence; `(C,)` and `(C, V)` the gradients of cross-entropy and
        divergence together, of the labels and of the other tokens.
    """
    half = tf.shape(rest)[0] // 2
    first, second = others[:half], others[half:]
    difference = logits[:half] - logits[half:]
    label_difference = label_logits[:half] - label_logits[half:]
    rest_1, rest_2 = rest[:half], rest[half:]

    def of_one(others, other_others, rest, other_rest, difference, label_difference):
        scaled = others * difference
        mean = rest * tf.cast(tf.reduce_sum(scaled, axis=-1), tf.float32)
        mean += (1.0 - rest) * label_difference
        factor = 0.5 * r_drop
        of_label = -rest + factor * (
            (1.0 - rest) * (label_difference - mean + 1.0) - (1.0 - other_rest)
        )
        columns = factor * rest, rest * (1.0 + factor * (1.0 - mean)), factor * other_rest
        a, b, c = (tf.cast(column[:, None], others.dtype) for column in columns)
        return mean, of_label, a * scaled + b * others - c * other_others

    mean_1, of_label_1, of_others_1 = of_one(
        first, second, rest_1, rest_2, difference, label_difference
    )
    mean_2, of_label_2, of_others_2 = of_one(
        second, first, rest_2, rest_1, -difference, -label_difference
    )
    divergence = 0.25 * r_drop * (mean_1 + mean_2)
    return (
        tf.concat([divergence, divergence], axis=0),
        tf.concat([of_label_1, of_label_2], axis=0),
        tf.concat([of_others_1, of_others_2], axis=0),
    )


def _firsts_before_seconds(values):
    """Returns the even rows, then the odd rows."""
    return tf.concat([values[::2], values[1::2]], axis=0)


def _pairs_together(values):
    """Undoes `_firsts_before_seconds`."""
    half = tf.shape(values)[0] // 2
    pairs = tf.stack([values[:half], values[half:]], axis=1)
    return tf.reshape(pairs, tf.shape(values))


def _without_labels(logits, labels):
    """Returns the labels' logits `(C,)` in float32, and `logits` `(C, V)` in which they are least.

    The logits are changed in place: a copy takes half as long as the softmax.
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


def ensure_shape(x, shape):
    """As in `portable.py`, with an operation in the graph that compares the sizes."""
    return tf.ensure_shape(x, shape)


def add_bias(x, bias):
    """As in `portable.py`, not fused with the matrix product: with few rows that is twice as fast.

    TensorFlow fuses adjacent operations; a check of the shape separates them.
    """
    return tf.ensure_shape(x, [None, bias.shape[0]]) + bias


def take_rows(values, indices):
    """As in `portable.py`, in one operation: Keras's also handles negative indices."""
    return tf.gather(values, indices)


def batch_gather(values, indices):
    """As in `portable.py`, in one operation instead of a dozen."""
    return tf.gather(values, indices, axis=1, batch_dims=1)


def start_cache(num_rows, num_heads, max_length, width, dtype):
    """As in `portable.py`, by a stateful operation, so that no optimization merges two caches."""
    length = tf.minimum(max_length, _growth(num_rows))
    shape = tf.stack([num_rows, num_heads, length, width])
    cache = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True)
    return tf.ensure_shape(cache, [None, num_heads, None, width])


def cache_position(cache, step):
    """As in `portable.py`: the indices `(R * H,)` of the rows that `cache_update` writes, and L."""
    num_rows, num_heads, length, _ = tf.unstack(tf.shape(cache))
    return tf.range(num_rows * num_heads) * length + step, length


def cache_update(caches, position, values):
    """As in `portable.py`, in place: TensorFlow's scatter copies a loop variable in every step."""
    indices, length = position
    updated = []
    for cache, value in zip(caches, values, strict=True):
        rows, new_rows = (tf.reshape(x, [-1, x.shape[-1]]) for x in (cache, value))
        rows = tf.raw_ops.InplaceUpdate(x=rows, i=indices, v=new_rows)
        # the same shape for all layers, so that TensorFlow computes it once
        updated.append(tf.reshape(rows, [-1, cache.shape[1], length, cache.shape[3]]))
        updated[-1].set_shape(cache.shape)
    return updated


def search_loop(body, state, cache, memory, num_hypotheses, max_length):
    """As in `portable.py`; ended inputs and unused cache positions cost nothing.

    An inner loop runs steps with constant shapes. It stops when the cache is full, or when the
    search has ended for a quarter of its inputs: then these are dropped, and the cache grows.
    """

    def take_steps(step, rows, results, state, cache, memory):
        num_inputs = tf.size(rows)
        capacity = tf.minimum(max_length, step + _growth(num_inputs * num_hypotheses))
        cache = tf.nest.map_structure(lambda tensor: _lengthened(tensor, capacity), cache)

        def go_on(step, state, cache):
            num_active = tf.math.count_nonzero(state.active, dtype=tf.int32)
            return (step < capacity) & (4 * num_active > 3 * num_inputs)

        def advance(step, state, cache):
            return (step + 1, *body(step, state, cache, memory))

        # Steps must not overlap, because each writes the cache in place.
        start = (step, state, cache)
        step, state, cache = tf.while_loop(go_on, advance, start, parallel_iterations=1)

        def write(result, tensor):
            return tf.tensor_scatter_nd_update(result, rows[:, None], tensor)

        kept = tf.where(state.active)[:, 0]
        kept_rows = kept[:, None] * num_hypotheses + tf.range(num_hypotheses, dtype=kept.dtype)
        kept_rows = tf.reshape(kept_rows, [-1])
        return (
            step,
            tf.gather(rows, kept),
            tf.nest.map_structure(write, results, state),
            tf.nest.map_structure(lambda tensor: tf.gather(tensor, kept), state),
            tf.nest.map_structure(lambda tensor: tf.gather(tensor, kept_rows), cache),
            tf.nest.map_structure(lambda tensor: tf.gather(tensor, kept), memory),
        )

    rows = tf.range(tf.shape(state.active, tf.int64)[0])
    start = (0, rows, state, state, cache, memory)
    _, _, results, *_ = tf.while_loop(
        lambda step, rows, *_: tf.size(rows) > 0,
        take_steps,
        start,
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            tf.nest.map_structure(lambda tensor: tensor.shape, state),
            tf.nest.map_structure(_shape_of_any_batch, state),
            tf.nest.map_structure(_shape_of_any_length, cache),
            tf.nest.map_structure(_shape_of_any_batch, memory),
        ),
    )
    return results


def extend_cache(cache, step):
    """As in `portable.py`: twice as long where they are full."""

    def lengthened(tensor):
        is_full = _has_positions(tensor) and step >= tensor.shape[2]
        return _lengthened(tensor, 2 * tensor.shape[2]) if is_full else tensor

    return tf.nest.map_structure(lengthened, cache)


def _growth(num_rows):
    return tf.maximum(CACHE_GROWTH, CACHE_ROWS // tf.maximum(num_rows, 1))


def _lengthened(cache, length):
    """Returns `cache` `(R, H, L, ...)` that can hold `length` positions; unchanged without L."""
    if not _has_positions(cache):
        return cache
    missing = tf.maximum(length - tf.shape(cache)[2], 0)
    paddings = [[0, 0], [0, 0], [0, missing]] + [[0, 0]] * (len(cache.shape) - 3)
    return tf.pad(cache, paddings)


def _shape_of_any_batch(tensor):
    return tf.TensorShape([None, *tensor.shape[1:]])


def _has_positions(cache):
    return len(cache.shape) > 2 and cache.shape[2] != 1


def _shape_of_any_length(cache):
    shape = [None, *cache.shape[1:]]
    if _has_positions(cache):
        shape[2] = None
    return tf.TensorShape(shape)


def scan(step, carry, inputs):
    """As in `portable.py`, for outputs of other shapes than the carry's, in one loop.

    The first step stands before the loop: it shows the shapes of the outputs.
    """
    first = tf.convert_to_tensor(tf.nest.flatten(inputs)[0])
    static_length, length = first.shape[0], tf.shape(first)[0]
    num_steps = tf.maximum(length, 1)  # the first step needs an input

    def as_array(x):
        x = tf.convert_to_tensor(x)
        if not x.shape[0]:
            x = tf.pad(x, [[0, num_steps - length]] + [[0, 0]] * (len(x.shape) - 1))
        return tf.TensorArray(x.dtype, num_steps, element_shape=x.shape[1:]).unstack(x)

    def new_array(output):
        array = tf.TensorArray(output.dtype, num_steps, element_shape=output.shape)
        return array.write(0, output)

    def read(arrays, position):
        return tf.nest.map_structure(lambda array: array.read(position), arrays)

    def advance(position, carry, outputs):
        carry, output = step(carry, read(arrays, position))
        outputs = tf.nest.map_structure(lambda x, y: x.write(position, y), outputs, output)
        return position + 1, carry, outputs

    arrays = tf.nest.map_structure(as_array, inputs)
    first_carry, output = step(carry, read(arrays, 0))
    if not static_length:  # perhaps there is no position at all
        first_carry = tf.nest.map_structure(
            lambda after, before: tf.where(length > 0, after, before), first_carry, carry
        )
    start = (1, first_carry, tf.nest.map_structure(new_array, output))
    _, carry, outputs = tf.while_loop(
        lambda position, *_: position < num_steps, advance, start, maximum_iterations=num_steps
    )

    def stacked(array):
        output = array.stack()[:length]
        output.set_shape([static_length, *output.shape[1:]])
        return output

    return carry, tf.nest.map_structure(stacked, outputs)


def gradients(function, variables):
    """As in `portable.py`."""
    with tf.GradientTape() as tape:
        value = function()
    found = tape.gradient(value, [variable.value for variable in variables])
    return [None if each is None else tf.convert_to_tensor(each).numpy() for each in found]


def linear_recurrence(decay, added):
    """As in `portable.py`; on a CPU, the loop takes a fifth of the time of an associative scan."""
    return portable.recurrence_in_order(scan, decay, added)


def compile_function(function, variables=()):
    """As in `portable.py`: one graph for all sizes, which reads the variables in every call."""
    graph = None

    def compiled(*tensors):
        nonlocal graph
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if graph is None:
            signature = [tf.TensorSpec([None] * len(x.shape), x.dtype) for x in tensors]
            graph = tf.function(function, signature, autograph=False)
        return graph(*tensors)

    return first_call_locked(compiled)


def enable_determinism():
    """As in `portable.py`."""
    tf.config.experimental.enable_op_determinism()


def num_search_threads():
    """As in `portable.py`: one for each core, unless another device computes."""
    return 1 if _has_accelerator() else NUM_CORES


def _has_accelerator():
    return any(d.device_type != "CPU" for d in tf.config.list_physical_devices())


def one_thread_per_operation():
    """As in `portable.py`: dividing the small operations of a search costs more than it saves."""
    with contextlib.suppress(RuntimeError):  # a program that calls this has begun to compute
        tf.config.threading.set_intra_op_parallelism_threads(1)
