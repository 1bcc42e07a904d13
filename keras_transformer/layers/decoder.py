"""The decoder of a Transformer (Vaswani et al., 2017, section 3.1), in one pass or step by step.

Shapes: B batch, T target length, S source length, D d_model, H heads, N hypotheses of each input
(in decoding).
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.layers.decoder_block import DecoderBlock, check_cross_attention
from keras_transformer.layers.decoding_step import DecodingState
from keras_transformer.layers.stack import Stack
from keras_transformer.types import Shape, Tensor

ALIGNMENT_HEAD = 0
"""The head that guided alignment trains, in the layer `alignment_layer`."""


def alignment_layer(num_layers: int) -> int:
    """Returns the number of the layer whose cross-attention is taken for an alignment, from 0.

    It is the last but one, which Garg et al. (2019, section 4.1, https://arxiv.org/abs/1909.02074)
    found to align best without training for it, and which they train to align; or the only one.
    """
    return max(0, num_layers - 2)


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(Stack):
    """An embedding and a stack of `DecoderBlock`s.

    Each position attends to itself, to the positions before it, and to the source. Without
    cross-attention it is the stack of a language model.

    Source: https://arxiv.org/abs/1706.03762, section 3.1, and figure 1, right.

    Args: those of `Stack`, and
        cross_attention: the attention to the source: "dense", "linear" or "performer"; None for a
            decoder without a source.

    Call arguments:
        inputs: the input of the embedding, such as ids `(B, T)`.
        encoder_output: `(B, S, D)`; None without cross-attention.
        source_padding_mask: bool `(B, S)`, True where a source position is real; None: the mask
            that Keras attached to `encoder_output`.
        return_attention_weights: whether to return the weights too.
        return_log_alignment: whether to return instead the logarithms of the weights of one head of
            the cross-attention: head `ALIGNMENT_HEAD` of the layer `alignment_layer`.
        training: whether dropout is applied.

    Returns:
        `(B, T, D)`. With return_attention_weights, `(output, self_weights, cross_weights)`: lists
        of `(B, H, T, T)` and of `(B, H, T, S)`, one for each block; a list is empty if the blocks
        have no such weights. With return_log_alignment, `(output, log_weights)`, the latter float32
        `(B, T, S)`.

    Raises:
        ValueError: see `Encoder`; or a cross_attention that needs distances.

    Example:
    >>> decoder = Decoder(TokenEmbedding(100, 16), num_layers=2, num_heads=2, ff_dim=32)
    >>> decoder(np.array([[2, 7]]), np.zeros((1, 3, 16))).shape
    (1, 2, 16)
    """

    def __init__(
        self,
        embedding: keras.layers.Layer,
        num_layers: int,
        num_heads: int,
        ff_dim: int,
        cross_attention: str | dict[str, Any] | None = "dense",
        **kwargs: Any,
    ) -> None:
        super().__init__(embedding, num_layers, num_heads, ff_dim, **kwargs)
        self.cross_attention = cross_attention
        self.blocks = [
            DecoderBlock(
                **self.block_arguments(),
                cross_attention=self._new_cross_attention(),
                has_cross_attention=cross_attention is not None,
                name=f"block_{i}",
            )
            for i in range(num_layers)
        ]

    def _new_cross_attention(self):
        if self.cross_attention is None:
            return None
        layer = self.new_attention(self.cross_attention)
        check_cross_attention(layer, self.cross_attention)
        return layer

    @property
    def gives_cross_weights(self) -> bool:
        """Whether the call can return the weights of the cross-attention."""
        attention = self.blocks[0].cross_attention
        return attention is not None and attention.gives_weights

    @property
    def cross_heads(self) -> tuple[int, int]:
        """The number of layers and of heads of the cross-attention whose weights are returned."""
        return (self.num_layers, self.num_heads) if self.gives_cross_weights else (0, 0)

    def build(self, inputs_shape: Shape, encoder_output_shape: Shape | None = None) -> None:
        hidden_shape = self.build_around_blocks(inputs_shape)
        for block in self.blocks:
            block.build(hidden_shape, encoder_output_shape)

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        return_attention_weights: bool = False,
        return_log_alignment: bool = False,
        training: bool = False,
    ) -> Tensor:
        x = self.embed(inputs, training)
        options = dict(source_padding_mask=source_padding_mask, training=training)
        options["return_attention_weights"] = return_attention_weights
        aligning = alignment_layer(self.num_layers) if return_log_alignment else None
        self_weights, cross_weights, log_weights = [], [], None
        for number, block in enumerate(self.blocks):
            if number == aligning:
                x, log_weights = block(x, encoder_output, log_weights_of=ALIGNMENT_HEAD, **options)
                continue
            x = block(x, encoder_output, **options)
            if return_attention_weights:
                x, block_self_weights, block_cross_weights = x
                if block.self_attention.gives_weights:
                    self_weights.append(block_self_weights)
                if self.gives_cross_weights:
                    cross_weights.append(block_cross_weights)
        x = self.finish(x)
        if return_log_alignment:
            return x, log_weights
        return (x, self_weights, cross_weights) if return_attention_weights else x

    # === Step by step ===

    def decoding_weights(self) -> Any:
        """Returns the weights in the form that `decode_step` reads: a list of dicts."""
        return [block.decoding_weights() for block in self.blocks]

    def start_decoding(
        self,
        num_rows: int,
        max_length: int,
        encoder_output: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
    ) -> DecodingState:
        """Returns the `DecodingState` before the first step. Its lists have one entry per block.

        Args:
            num_rows: B * N, number of hypotheses of all inputs.
            max_length: maximum number of steps, an int or an int scalar.
            encoder_output, source_padding_mask: see the call.
        """
        source = encoder_output, source_padding_mask
        return DecodingState(
            cache=[b.self_attention.start_cache(num_rows, max_length) for b in self.blocks],
            memory=[block.start_memory(*source) for block in self.blocks],
        )

    def decode_step(
        self, ids: Tensor, step: Tensor, state: DecodingState, weights: Any
    ) -> tuple[Tensor, DecodingState]:
        """Computes the next position of `call`, without dropout.

        Args:
            ids: `(B, N)`, the token at this position of each hypothesis.
            step: int scalar, counted from 0.
            state: `DecodingState`, from `start_decoding` or the previous step.
            weights: from `decoding_weights`.
        Returns:
            `(output, state)`: `(B * N, D)`, and the state with this position added.
        """
        x = ops.cast(self.embedding(ops.reshape(ids, (-1,))), self.compute_dtype)
        if self.position_layer is not None:
            x = x + self.position_layer.encode(ops.reshape(step, (1,)))
        num_hypotheses, new_cache = ids.shape[1], []
        step = self.blocks[0].self_attention.start_step(step, state.cache[0])
        x = self.blocks[0].ready_to_decode(x)
        for block, *parts in zip(self.blocks, state.cache, state.memory, weights, strict=True):
            cache, memory, block_weights = parts
            x, cache = block.decode_step(x, step, cache, memory, num_hypotheses, block_weights)
            new_cache.append(cache)
        return self.finish(x), state._replace(cache=new_cache)
