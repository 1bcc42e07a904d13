"""Batches as `model.fit` reads them: with TensorFlow, and with the other backends of Keras."""

import itertools

import keras

NUM_PREFETCHED = 4


def fit_batches(generate, example, num_batches=None):
    """Returns what `fit` reads: the batches that a generator yields.

    That is a `tf.data.Dataset`; on JAX and PyTorch, the generator, or `FiniteBatches` if there is
    an end, as `fit` iterates over the batches of a validation again.

    Args:
        generate: function without arguments that returns a generator of batches: nested NumPy
            arrays.
        example: a batch of the same structure, dtypes and ranks.
        num_batches: number of batches; None if there is no end.
    """
    if keras.backend.backend() != "tensorflow":
        return generate() if num_batches is None else FiniteBatches(generate, num_batches)
    import tensorflow as tf  # here, because other backends do not need it

    signature = tf.nest.map_structure(lambda x: tf.TensorSpec([None] * x.ndim, x.dtype), example)
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


class FiniteBatches(keras.utils.PyDataset):
    """Batches that are made when they are read, one after the other, and anew in each pass.

    Args:
        generate, num_batches: as in `fit_batches`.
    """

    def __init__(self, generate, num_batches):
        super().__init__()
        self.generate = generate
        self._num_batches = num_batches
        self._next = None

    def __len__(self):
        return self._num_batches

    def __getitem__(self, index):
        if index != self._next:  # another pass
            self._batches = itertools.islice(self.generate(), index, None)
        self._next = index + 1
        return next(self._batches)
