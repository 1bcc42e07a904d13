"""Token embedding with a tied output projection (Vaswani et al., 2017, section 3.4).

Shapes: B batch, T length, D d_model, V vocabulary.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import check_positive_integers
from keras_transformer.layers.base import Layer, NotQuantized, TracedShape, check_ids
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class TokenEmbedding(NotQuantized, TracedShape, Layer):
    """Looks up token embeddings, scaled by sqrt(D), and computes logits with the same table.

    "We share the same weight matrix between the two embedding layers and the pre-softmax linear
    transformation ... In the embedding layers, we multiply those weights by sqrt(d_model)"
    (https://arxiv.org/abs/1706.03762, section 3.4; Press and Wolf, 2017,
    https://arxiv.org/abs/1608.05859). Entries are drawn with standard deviation D^-0.5, so that
    the scaled embeddings have unit variance. BERT and GPT do not scale.

    Args:
        vocab_size: V, number of tokens in the vocabulary.
        d_model: D, width of an embedding.
        scale: whether embeddings are multiplied by sqrt(D).
        stddev: standard deviation of the initial entries, which are normal; None: D^-0.5.

    Call arguments:
        inputs: `(B, T)`, integers in `[0, V)`, which are checked in a NumPy array. In a tensor,
            others are an error of TensorFlow on a CPU, and elsewhere have any vector or none. With
            `reverse`, hidden states `(..., D)`.
        reverse: whether to compute logits instead, see `project`.

    Returns:
        `(B, T, D)`; with `reverse`, logits `(..., V)`.

    Example:
    >>> embedding = TokenEmbedding(vocab_size=100, d_model=16)
    >>> embedding(np.array([[4, 7, 3]])).shape
    (1, 3, 16)
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        scale: bool = True,
        stddev: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that come as floats to bfloat16
        check_positive_integers(vocab_size=vocab_size, d_model=d_model)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.scale = scale
        self.stddev = stddev

    def build(self, input_shape: Shape | None = None) -> None:
        stddev = self.d_model**-0.5 if self.stddev is None else self.stddev
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=stddev),
        )

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not (args and args[0] or kwargs.get("reverse")):
            check_ids(inputs, range(self.vocab_size), "inputs")
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        table = ops.cast(self.embeddings, self.compute_dtype)
        if reverse:
            return ops.matmul(ops.cast(inputs, self.compute_dtype), ops.transpose(table))
        rows = backend.take_rows(table, ops.cast(inputs, "int32"))
        return rows * math.sqrt(self.d_model) if self.scale else rows

    def project(self, hidden: Tensor) -> Tensor:
        """Returns the logits `(..., V)` of `hidden` `(..., D)`: its product with each embedding."""
        return self(hidden, reverse=True)  # a call, so that functional models record the table
