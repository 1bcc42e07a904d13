"""Dropout of single entries and of whole tokens, with cheap random numbers.

Shapes: B batch, T length, D d_model.
"""

import numbers
from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError
from keras_transformer.types import Tensor


def check_rates(**rates):
    """Raises `InputError` unless each dropout rate, given by its name, is in [0, 1)."""
    for name, rate in rates.items():
        if not isinstance(rate, numbers.Real) or not 0 <= rate < 1:
            raise InputError(f"The dropout rate must be in [0, 1). Received: {name}={rate!r}.")


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout, with a mask that the backend draws faster.

    Source: Srivastava et al., 2014, https://jmlr.org/papers/v15/srivastava14a.html.
    On TensorFlow one random byte decides for each entry, so the rate is rounded to a multiple of
    1/256, where that changes it by at most 2 %; other rates, such as 0.001, are exact. The entries
    that are kept are scaled by the rounded rate.

    Args:
        rate: fraction of the entries that are set to zero in training, in `[0, 1)`.
        seed: seed of the random numbers.

    Raises:
        ValueError: rate outside of `[0, 1)`.

    Example:
    >>> Dropout(0.1)(np.zeros((1, 5, 8)), training=True).shape
    (1, 5, 8)
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        check_rates(rate=rate)
        super().__init__(rate, seed=seed, **kwargs)
        if self.noise_shape is not None:
            raise InputError(
                "Expected a layer that drops every entry independently. "
                f"Received: noise_shape={self.noise_shape}. Use keras.layers.Dropout for that."
            )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if training and self.rate > 0:
            return backend.dropout(inputs, self.rate, self.seed_generator)
        return inputs


@keras.saving.register_keras_serializable("keras_transformer")
class WordDropout(Dropout):
    """Sets the whole vector of some tokens to zero, so that a model leans less on single words.

    Sources: Gal and Ghahramani, 2016, section 4.2, https://arxiv.org/abs/1512.05287; in translation
    Sennrich et al., 2016, section 2.4, https://arxiv.org/abs/1606.02891. The vectors that are kept
    are scaled up. Unlike in the first paper, each occurrence of a word is drawn by itself.

    Args:
        rate: fraction of the tokens set to zero in training, in `[0, 1)`, as exact as in `Dropout`.
        seed: seed of the random numbers.

    Call arguments:
        inputs: `(B, T, D)`, one vector for each token.
        training: whether dropout is applied.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: rate outside of `[0, 1)`.

    Example:
    >>> WordDropout(0.1)(np.zeros((1, 5, 8)), training=True).shape
    (1, 5, 8)
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if training and self.rate > 0:
            factors = ops.ones_like(inputs[..., :1])  # (B, T, 1)
            return inputs * backend.dropout(factors, self.rate, self.seed_generator)
        return inputs
