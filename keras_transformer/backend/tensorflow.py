"""The hot operations where TensorFlow on a CPU can do better than `keras.ops`.

Shapes: L cache length, R rows, N tokens, V vocabulary.
"""

import tensorflow as tf


def dropout(x, rate, seed_generator):
    """Dropout that decides each entry by one random byte: a quarter of the random numbers.

    The rate is therefore rounded to a multiple of 1/256; what is kept is scaled by the rounded
    rate, so that the expectation is exact.
    """
    threshold = min(round(rate * 256), 255)  # a rate below 1 keeps something
    size = tf.size(x)
    seed = tf.cast(tf.convert_to_tensor(seed_generator.next()), tf.int32)
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


def cache_update(cache, step, value):
    """As in `portable.py`; a scatter that TensorFlow's loops do in place."""
    return tf.tensor_scatter_nd_update(cache, [[step]], value[None])


def cache_prefix(cache, length):
    """The first `length` rows: attention costs what has been written, not what is allocated."""
    return cache[:length]


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
