"""NumPy batches as a `tf.data.Dataset`."""

import tensorflow as tf

NUM_PREFETCHED = 4


def tf_dataset(generate, dtypes, num_batches=None):
    """Returns the `tf.data.Dataset` of the batches that a generator yields.

    Args:
        generate: function without arguments that returns an iterator of batches: nested NumPy
            arrays `(B, length)`.
        dtypes: the same nested structure of names of dtypes, or of `tf.TensorSpec` for arrays of
            another shape.
        num_batches: number of batches; None if there is no end.
    """
    signature = tf.nest.map_structure(
        lambda x: x if isinstance(x, tf.TensorSpec) else tf.TensorSpec([None, None], x), dtypes
    )
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if num_batches is None:
        num_batches = tf.data.INFINITE_CARDINALITY
    options = tf.data.Options()
    options.autotune.enabled = False  # it can stall the end of an epoch for seconds
    return (
        dataset.prefetch(NUM_PREFETCHED)
        .apply(tf.data.experimental.assert_cardinality(num_batches))
        .with_options(options)
    )
