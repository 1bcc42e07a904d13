"""The embedding of BERT (Devlin et al., 2019, figure 2, https://arxiv.org/abs/1810.04805).

Shapes: B batch, T length, D d_model.
"""

from typing import Any

import keras

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer, TracedShape
from keras_transformer.layers.layer_normalization import LayerNormalization
from keras_transformer.layers.positions import LearnedPositions
from keras_transformer.layers.token_embedding import TokenEmbedding
from keras_transformer.types import Shape, Tensor

STDDEV = 0.02  # of the initial entries of all tables, as in BERT's own code


@keras.saving.register_keras_serializable("keras_transformer")
class BertEmbedding(TracedShape, Layer):
    """LayerNorm(token embedding + segment embedding + position embedding), all of them learned.

    Source: https://arxiv.org/abs/1810.04805, section 3 and figure 2. The layer normalization is not
    in the figure, but in the paper's own code. `Encoder` applies the dropout that follows it.

    Args:
        vocab_size: number of tokens in the vocabulary.
        d_model: D, width of an embedding.
        max_length: number of positions in the table; None: no positions.
        num_segments: number of segments, such as the two sentences of a pair.
        layer_norm_epsilon: see `LayerNormalization`.

    Call arguments:
        inputs: ids `(B, T)`, or {"ids": `(B, T)`, "segment_ids": `(B, T)`}, integers, T at most
            `max_length`. Without segment_ids every token is in segment 0.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: sizes below 1; ids of another rank, segment_ids of another shape, other inputs,
            or a static T above max_length.

    Example:
    >>> embedding = BertEmbedding(vocab_size=100, d_model=16)
    >>> embedding({"ids": np.array([[4, 7, 3]]), "segment_ids": np.array([[0, 0, 1]])}).shape
    (1, 3, 16)
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        max_length: int | None = 512,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that come as floats to bfloat16
        check_positive_integers(num_segments=num_segments)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.max_length = max_length
        self.num_segments = num_segments
        self.layer_norm_epsilon = layer_norm_epsilon
        policy = self.dtype_policy
        table = dict(d_model=d_model, scale=False, stddev=STDDEV, dtype=policy)
        self.token_embedding = TokenEmbedding(vocab_size, **table, name="token_embedding")
        self.segment_embedding = TokenEmbedding(num_segments, **table, name="segment_embedding")
        self.position_layer = None
        if max_length is not None:
            self.position_layer = LearnedPositions(max_length, dtype=policy, name="positions")
        self.norm = LayerNormalization(layer_norm_epsilon, dtype=policy, name="norm")

    def build(self, input_shape: Shape | None = None) -> None:
        self.token_embedding.build()
        self.segment_embedding.build()
        for layer in (self.position_layer, self.norm):
            if layer is not None:
                layer.build((None, None, self.d_model))

    def call(self, inputs: Tensor) -> Tensor:
        ids, segment_ids = ids_and_segments(inputs)
        x = self.token_embedding(ids) + self.segment_embedding(segment_ids)
        if self.position_layer is not None:
            x = self.position_layer(x)
        return self.norm(x)


def ids_and_segments(inputs):
    """Returns the ids and segment ids of the call's inputs, `(B, T)`; raises `InputError`."""
    inputs = {"ids": inputs} if hasattr(inputs, "shape") else inputs
    if not isinstance(inputs, dict):
        raise InputError(f"Expected ids (B, T), or a dict of them. Received: {type(inputs)}.")
    if inputs.get("ids") is None or not inputs.keys() <= {"ids", "segment_ids"}:
        raise InputError(
            "Expected a dict of ids and, where there are several segments, segment_ids. "
            f"Received: {sorted(inputs)}."
        )
    ids = inputs["ids"]
    segment_ids = inputs.get("segment_ids")
    if segment_ids is None:
        segment_ids = keras.ops.zeros_like(ids)
    shapes = tuple(ids.shape), tuple(segment_ids.shape)
    if len(shapes[0]) != 2 or len(shapes[1]) != 2 or not _may_be_equal(*shapes):
        raise InputError(
            "ids and segment_ids must have one shape, (B, T). "
            f"Received: ids.shape={shapes[0]}, segment_ids.shape={shapes[1]}."
        )
    if shapes[0][1] == 0:
        raise InputError(
            "A text has at least one token, such as its start token. "
            f"Received: ids.shape={shapes[0]}."
        )
    return ids, segment_ids


def _may_be_equal(shape, other):
    return all(None in pair or pair[0] == pair[1] for pair in zip(shape, other, strict=True))
