"""Dropout of whole tokens (Gal and Ghahramani, 2016, section 4.2, https://arxiv.org/abs/1512.05287).

Shapes: B batch, T length, D d_model.
"""

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.layers.dropout import Dropout
from keras_transformer.types import Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class WordDropout(Dropout):
    """Sets the whole vector of some tokens to zero, so that a model leans less on single words.

    Sources: Gal and Ghahramani, 2016, section 4.2, https://arxiv.org/abs/1512.05287; in translation
    Sennrich et al., 2016, section 2.4, https://arxiv.org/abs/1606.02891. The vectors that are kept
    are scaled up. Unlike in the first paper, each occurrence of a word is drawn by itself.

    Args:
        rate: fraction of the tokens that are set to zero in training, in `[0, 1)`.
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
