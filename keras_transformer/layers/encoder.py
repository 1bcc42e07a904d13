"""The encoder of a Transformer (Vaswani et al., 2017, section 3.1).

Shapes: B batch, S length, D d_model, H heads.
"""

from typing import Any

import keras

from keras_transformer.layers.encoder_block import EncoderBlock
from keras_transformer.layers.stack import Stack
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(Stack):
    """An embedding and a stack of `EncoderBlock`s. Each position attends to all positions.

    Source: https://arxiv.org/abs/1706.03762, section 3.1, and figure 1, left.

    Args: see `Stack`.

    Call arguments:
        inputs: the input of the embedding, such as ids `(B, S)`.
        padding_mask: bool `(B, S)`, True where a position is real; None: the mask that Keras
            attached to the embeddings, as `keras.layers.Embedding(mask_zero=True)` does.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        `(B, S, D)`. With return_attention_weights, `(output, weights)`: a list of `(B, H, S, S)`,
        one for each block; it is empty for linear attention.

    Raises:
        ValueError: num_layers below 1, unknown positions or attention, or ALiBi with linear
            attention.

    Example:
    >>> encoder = Encoder(TokenEmbedding(100, 16), num_layers=2, num_heads=2, ff_dim=32)
    >>> encoder(np.array([[5, 6, 3]])).shape
    (1, 3, 16)
    """

    def __init__(
        self,
        embedding: keras.layers.Layer,
        num_layers: int,
        num_heads: int,
        ff_dim: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(embedding, num_layers, num_heads, ff_dim, **kwargs)
        self.blocks = [
            EncoderBlock(**self.block_arguments(), name=f"block_{i}") for i in range(num_layers)
        ]

    def build(self, input_shape: Shape) -> None:
        hidden_shape = self.build_around_blocks(input_shape)
        for block in self.blocks:
            block.build(hidden_shape)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        x = self.embed(inputs, training)
        options = dict(return_attention_weights=return_attention_weights, training=training)
        weights = []
        for block in self.blocks:
            x = block(x, padding_mask=padding_mask, **options)
            if return_attention_weights:
                x, block_weights = x
                if block.self_attention.gives_weights:
                    weights.append(block_weights)
        x = self.finish(x)
        return (x, weights) if return_attention_weights else x
