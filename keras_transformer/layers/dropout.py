"""Dropout with cheap random numbers (Srivastava et al., 2014, https://jmlr.org/papers/v15/srivastava14a.html)."""

import keras

from keras_transformer import backend


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout, drawing its mask by the backend's fastest exact means.

    On TensorFlow one random byte decides an entry, so the rate is rounded to a multiple of 1/256
    (and what is kept is scaled by the rounded rate).

    Args:
        rate: the share of entries that is zeroed in training, in `[0, 1)`.
        seed: seed of the random numbers.
    """

    def call(self, inputs, training=False):
        if training and self.rate > 0:
            return backend.dropout(inputs, self.rate, self.seed_generator)
        return inputs
