"""A recurrent encoder (Cho et al., 2014; Sutskever et al., 2014; Bahdanau et al., 2015).

Shapes: B batch, S source length, U units, C = U, or 2 U if bidirectional.
"""

from typing import Any

import keras
from keras import ops
from keras.src.backend import set_keras_mask  # Keras has no public function that attaches a mask

from keras_transformer.errors import check_positive_integers
from keras_transformer.layers.base import Layer, NotQuantized, TracedShape, build_embedding
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.masks import known_padding_mask
from keras_transformer.layers.recurrence import Recurrence
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class RnnEncoder(NotQuantized, TracedShape, Layer):
    """An embedding and a stack of GRU or LSTM layers, each in one direction or in both.

    Source: Bahdanau et al., 2015, section 3.2, https://arxiv.org/abs/1409.0473, for both
    directions; Sutskever et al., 2014, https://arxiv.org/abs/1409.3215, for several layers. A layer
    in both directions gives each position the concatenation of both outputs, which the next layer
    reads. Padding changes nothing: the backward direction starts at the last real position.

    Args:
        embedding: layer from the inputs to vectors `(B, S, D)`; a decoder may share it.
        num_layers: number of layers.
        units: U, the width of one direction's state.
        cell: "gru", with the reset gate after the product as in cuDNN and PyTorch, or "lstm".
        bidirectional: whether each layer reads the sequence in both directions.
        dropout: rate on the embeddings and on each layer's output, as in Zaremba et al., 2014,
            https://arxiv.org/abs/1409.2329; not on the way from one position to the next.

    Call arguments:
        inputs: the input of the embedding, such as ids `(B, S)`.
        padding_mask: bool `(B, S)`, True where a position is real; None: the mask that Keras
            attached to the embeddings. Padding stands at the end.
        return_state: whether to return the last state too.
        training: whether dropout is applied.

    Returns:
        `(B, S, C)`, 0 at padding. With return_state, `(output, state)`: the state `(B, C)` is the
        last layer's output after the whole sequence: that of the last real position and, if
        bidirectional, that of the first one, which the backward direction reads last.

    Raises:
        ValueError: num_layers or units below 1, or an unknown cell.

    Example:
    >>> encoder = RnnEncoder(TokenEmbedding(100, 16), num_layers=2, units=8)
    >>> encoder(np.array([[5, 6, 3]])).shape
    (1, 3, 16)
    """

    def __init__(
        self,
        embedding: keras.layers.Layer,
        num_layers: int = 1,
        units: int = 256,
        cell: str = "gru",
        bidirectional: bool = True,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that come as floats to bfloat16
        check_positive_integers(num_layers=num_layers, units=units)
        self.embedding = embedding
        self.num_layers = num_layers
        self.units = units
        self.cell = cell
        self.bidirectional = bidirectional
        self.dropout = dropout
        self.embedding_dropout = Dropout(dropout, dtype=self.dtype_policy)
        self.output_dropouts = [
            Dropout(dropout, dtype=self.dtype_policy) for _ in range(num_layers)
        ]
        self.forward_layers = self._new_layers("forward")
        self.backward_layers = self._new_layers("backward") if bidirectional else []

    def _new_layers(self, direction):
        options = dict(reverse=direction == "backward", dtype=self.dtype_policy)
        names = [f"{direction}_{i}" for i in range(self.num_layers)]
        return [Recurrence(self.cell, self.units, name=name, **options) for name in names]

    @property
    def output_dim(self) -> int:
        """C, the width of the output."""
        return self.units * (2 if self.bidirectional else 1)

    def build(self, input_shape: Shape) -> None:
        width = build_embedding(self.embedding, input_shape)
        for layers in self._directions():
            for layer in layers:
                layer.build((None, None, width))
            width = self.output_dim

    def _directions(self):
        """Returns for each layer the list of its recurrences, one or two."""
        columns = [self.forward_layers, *([self.backward_layers] if self.bidirectional else [])]
        return list(zip(*columns, strict=True))

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        return_state: bool = False,
        training: bool = False,
    ) -> Tensor:
        x = self.embedding(inputs)
        is_given = padding_mask is not None
        padding_mask = known_padding_mask(padding_mask, inputs, x)
        x = self.embedding_dropout(x, training=training)
        for layers, dropout in zip(self._directions(), self.output_dropouts, strict=True):
            found = [layer(x, padding_mask=padding_mask) for layer in layers]
            x = ops.concatenate([output for output, _ in found], axis=-1)
            x = dropout(x, training=training)
        if padding_mask is not None:
            x = ops.where(ops.cast(padding_mask, "bool")[..., None], x, ops.zeros_like(x))
            if not is_given:  # the layer that reads the output finds it there, as it was found here
                set_keras_mask(x, padding_mask)
        if not return_state:
            return x
        state = ops.concatenate([state[0] for _, state in found], axis=-1)
        return x, self.output_dropouts[-1](state, training=training)
