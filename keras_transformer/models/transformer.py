"""The encoder-decoder Transformer (Vaswani et al., 2017, https://arxiv.org/abs/1706.03762).

Shapes: B batch, S source length, T target length, D d_model, H heads, V target vocabulary.
"""

from typing import Any

import keras

from keras_transformer.errors import check_positive_integers
from keras_transformer.layers import Decoder, Encoder, padding_mask
from keras_transformer.layers.base import plain
from keras_transformer.layers.stack import check_num_heads
from keras_transformer.models.base import build_parts
from keras_transformer.models.translation_model import TranslationModel, source_and_target
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(TranslationModel):
    """The encoder-decoder: computes the logits of each target token from the tokens before it.

    The defaults are the paper's base model (table 3). `Transformer.from_preset` knows "tiny",
    "fast", "base" and "big".

    Args:
        source_vocab_size: number of tokens in the source vocabulary.
        target_vocab_size: V; None: source and target share one vocabulary.
        num_layers: number of blocks in the encoder.
        num_decoder_layers: number of blocks in the decoder; None: as many as in the encoder.
        d_model: D, the width of the model.
        ff_dim: width of the feed-forward networks' inner layer.
        num_heads: H, which must divide D.
        dropout: rate on the embeddings and on each sublayer's output.
        normalize_first: True for pre-norm, False for post-norm as in the paper.
        activation: activation of the feed-forward networks.
        positions: "sinusoidal" or "learned", which are added to the embeddings; or "rotary" or
            "alibi", which are applied within each self-attention.
        position_layout, position_base: of sinusoidal positions, see `layers.SinusoidalPositions`.
        max_length: maximum input length in tokens, for learned positions; the others have no limit.
        share_embeddings: whether source and target share one table, if they share a vocabulary.
        tie_output: whether the output layer is the target embedding (section 3.4) or has its own
            weights.
        scale_embeddings: whether embeddings are multiplied by sqrt(D), as in the paper.
        output_bias: whether the logits have biases, one for each target token.
        layer_norm_epsilon: see `layers.LayerNormalization`.
        attention: the self-attention of encoder and decoder: "dense", "local", "block", "strided",
            "linear" or "performer"; or a dict of a name and the layer's arguments, such as
            {"name": "local", "window": 8}.
        decoder_attention: the self-attention of the decoder, as `attention`, or "ssru", the
            recurrent `layers.Ssru`; None: that of the encoder.
        cross_attention: the decoder's attention to the source: "dense", "linear" or "performer".
        attention_dropout: rate on the attention weights; linear attention has none.
        ff_dropout: rate within the feed-forward networks, after the activation.
        word_dropout: rate at which whole tokens of source and target input are dropped, see
            `layers.WordDropout`.

    Call arguments:
        inputs: {"source_ids": `(B, S)`, "target_ids": `(B, T)`}, integers, padded with 0 at the
            end. The target starts with the start token and has no end token. In training there may
            be a third, "alignment", float32 `(B, T, S)`, see `data.TranslationBatches`: the loss
            `TokenCrossEntropy` then trains a head of the cross-attention to align.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        The logits `(B, T, V)`, or a pair of them and {"encoder": `[(B, H, S, S)]`, "decoder":
        `[(B, H, T, T)]`, "cross": `[(B, H, T, S)]`}, with one list entry per layer. Linear
        attention has no weights; its keys are left out.

    Raises:
        ValueError: sizes below 1, num_heads not dividing d_model, unknown positions or attention,
            a cross_attention that needs distances, a dropout rate outside of [0, 1), or ALiBi or
            attention_dropout with linear attention.

    Example:
    >>> model = Transformer(100, num_layers=1, d_model=16, ff_dim=32, num_heads=2)
    >>> source_ids, target_ids = np.array([[5, 6, 3]]), np.array([[2, 7]])
    >>> model({"source_ids": source_ids, "target_ids": target_ids}).shape
    (1, 2, 100)
    """

    NAME = "transformer"
    ATTENTION_SETTINGS = ("attention", "decoder_attention", "cross_attention")

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        num_layers: int = 6,
        num_decoder_layers: int | None = None,
        d_model: int = 512,
        ff_dim: int = 2048,
        num_heads: int = 8,
        dropout: float = 0.1,
        normalize_first: bool = False,
        activation: str = "relu",
        positions: str = "sinusoidal",
        position_layout: str = "interleaved",
        position_base: float = 10000.0,
        max_length: int = 1024,
        share_embeddings: bool = True,
        tie_output: bool = True,
        scale_embeddings: bool = True,
        output_bias: bool = False,
        layer_norm_epsilon: float = 1e-6,
        attention: str | dict[str, Any] = "dense",
        decoder_attention: str | dict[str, Any] | None = None,
        cross_attention: str | dict[str, Any] = "dense",
        attention_dropout: float = 0.0,
        ff_dropout: float = 0.0,
        word_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        layers = dict(num_layers=num_layers, num_decoder_layers=num_decoder_layers)
        check_positive_integers(optional=("num_decoder_layers",), **layers)
        check_num_heads(d_model, num_heads)
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.num_layers = num_layers
        self.num_decoder_layers = num_decoder_layers
        self.d_model = d_model
        self.ff_dim = ff_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = activation
        self.positions = positions
        self.position_layout = position_layout
        self.position_base = position_base
        self.max_length = max_length
        self.share_embeddings = share_embeddings
        self.tie_output = tie_output
        self.scale_embeddings = scale_embeddings
        self.output_bias = output_bias
        self.layer_norm_epsilon = layer_norm_epsilon
        self.attention = attention
        self.decoder_attention = decoder_attention
        self.cross_attention = cross_attention
        self.attention_dropout = attention_dropout
        self.ff_dropout = ff_dropout
        self.word_dropout = word_dropout

        source_embedding, target_embedding = self.new_embeddings(scale_embeddings)
        stack = dict(
            num_heads=num_heads,
            ff_dim=ff_dim,
            dropout=dropout,
            normalize_first=normalize_first,
            activation=activation,
            positions=positions,
            position_layout=position_layout,
            position_base=position_base,
            max_length=max_length,
            layer_norm_epsilon=layer_norm_epsilon,
            attention_dropout=attention_dropout,
            ff_dropout=ff_dropout,
            word_dropout=word_dropout,
            dtype=self.dtype_policy,
        )
        self.encoder = Encoder(
            source_embedding, num_layers, attention=plain(attention), **stack, name="encoder"
        )
        self.decoder = Decoder(
            target_embedding,
            num_decoder_layers or num_layers,
            attention=plain(decoder_attention or attention),
            cross_attention=plain(cross_attention),
            **stack,
            name="decoder",
        )
        if not tie_output:
            self.output_layer = self.new_output_layer(self.output_vocab_size)
        self.build_when_made(dict.fromkeys(self.id_ranges, (None, None)))

    @property
    def longest_input(self) -> int | None:
        return self.max_length if self.positions == "learned" else None

    @property
    def can_be_guided(self) -> bool:
        return self.gives_cross_weights

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        hidden = None, None, self.d_model
        decoder = self.decoder, (None, None), hidden
        build_parts(self, (self.encoder, (None, None)), decoder, (self.output_layer, hidden))
        if self.output_bias and self.output_biases is None:
            self.output_biases = self.add_weight(
                name="output_biases", shape=(self.output_vocab_size,), initializer="zeros"
            )

    def call(
        self,
        inputs: dict[str, Tensor],
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        source_ids, target_ids = source_and_target(inputs)
        source_padding_mask = padding_mask(source_ids)
        options = dict(return_attention_weights=return_attention_weights, training=training)
        x = self.encoder(source_ids, padding_mask=source_padding_mask, **options)
        encoder_output, encoder_weights = x if return_attention_weights else (x, None)
        options["source_padding_mask"] = source_padding_mask
        if training and not return_attention_weights and "alignment" in inputs:
            x, log_weights = self.decoder(
                target_ids, encoder_output, return_log_alignment=True, **options
            )
            return self.predict_tokens(x, (inputs["alignment"], log_weights))
        x = self.decoder(target_ids, encoder_output, **options)
        if not return_attention_weights:
            return self.predict_tokens(x)
        x, decoder_weights, cross_weights = x
        weights = {"encoder": encoder_weights, "decoder": decoder_weights, "cross": cross_weights}
        weights = {name: layers for name, layers in weights.items() if layers}
        return self.project(x), weights

    def encode(self, source_ids: Tensor) -> Tensor:
        """Returns the encoder's output `(B, S, D)` of `source_ids` `(B, S)`, without dropout."""
        return self.encoder(source_ids, padding_mask=padding_mask(source_ids))

    def read_source(self, source_ids: Tensor) -> dict[str, Tensor]:
        return {
            "encoder_output": self.encode(source_ids),
            "source_padding_mask": padding_mask(source_ids),
        }
