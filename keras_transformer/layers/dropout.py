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

    Raises:
        ValueError: rate outside of `[0, 1)`.
    """

    def __init__(self, rate, seed=None, **kwargs):
        if not 0 <= rate < 1:
            raise ValueError(f"The dropout rate must be in [0, 1). Received: rate={rate}.")
        super().__init__(rate, seed=seed, **kwargs)
        if self.noise_shape is not None:
            raise ValueError(
                "Every entry is drawn by itself. "
                f"Received: noise_shape={self.noise_shape}. Use keras.layers.Dropout for that."
            )

    def call(self, inputs, training=False):
        if training and self.rate > 0:
            return backend.dropout(inputs, self.rate, self.seed_generator)
        return inputs
