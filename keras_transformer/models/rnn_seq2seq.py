"""The recurrent encoder-decoder, with or without attention.

Shapes: B batch, S source length, T target length, D d_model, V target vocabulary.
"""

from typing import Any

import keras

from keras_transformer.errors import check_positive_integers
from keras_transformer.layers import RnnDecoder, RnnEncoder, padding_mask
from keras_transformer.models.base import build_parts
from keras_transformer.models.translation_model import TranslationModel, source_and_target
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class RnnSeq2Seq(TranslationModel):
    """GRU or LSTM encoder-decoder: computes the logits of each target token from those before it.

    With attention it is the model of Bahdanau et al. (2015, https://arxiv.org/abs/1409.0473) or of
    Luong et al. (2015, https://arxiv.org/abs/1508.04025). Without, the encoder's last state is all
    that the decoder knows of the source (Cho et al., 2014, https://arxiv.org/abs/1406.1078;
    Sutskever et al., 2014, https://arxiv.org/abs/1409.3215). `RnnDecoder` has the equations. Unlike
    in the papers, the embeddings are tied to one another and to the output layer unless arguments
    say otherwise. The defaults are a small model, those of the preset "rnn", for a CPU.

    Args:
        source_vocab_size: number of tokens in the source vocabulary.
        target_vocab_size: V; None: source and target share one vocabulary.
        num_layers: number of layers in the encoder.
        num_decoder_layers: number of layers in the decoder; None: as many as in the encoder.
        d_model: D, the width of the embeddings and of the decoder's output.
        units: width of the state of a layer, in each direction.
        cell: "gru" or "lstm".
        bidirectional: whether the encoder reads the source in both directions.
        attention: "bahdanau", before the step; "luong", after it; or None.
        score: the score function of the attention: "additive", "multiplicative", "dot_product" or
            "scaled_dot_product"; the last two need states and encoder outputs of the same width.
        input_feeding: whether each step reads the previous output; for "luong".
        dropout: rate on the embeddings, on each layer's output, and on the decoder's output.
        share_embeddings: whether source and target share one table, if they share a vocabulary.
        tie_output: whether the output layer is the target embedding or has its own weights.

    Call arguments:
        inputs: {"source_ids": `(B, S)`, "target_ids": `(B, T)`}, integers, padded with 0 at the
            end. The target starts with the start token and has no end token.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        The logits `(B, T, V)`, or a pair of them and {"cross": `[(B, 1, T, S)]`}, which is an empty
        dict without attention.

    Raises:
        ValueError: sizes below 1, an unknown cell, attention or score, input feeding without
            "luong", or a dot product of different widths.

    Example:
    >>> model = RnnSeq2Seq(100, d_model=16, units=8)
    >>> source_ids, target_ids = np.array([[5, 6, 3]]), np.array([[2, 7]])
    >>> model({"source_ids": source_ids, "target_ids": target_ids}).shape
    (1, 2, 100)
    """

    NAME = "rnn_seq2seq"

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        num_layers: int = 1,
        num_decoder_layers: int | None = None,
        d_model: int = 256,
        units: int = 256,
        cell: str = "gru",
        bidirectional: bool = True,
        attention: str | None = "bahdanau",
        score: str = "additive",
        input_feeding: bool = False,
        dropout: float = 0.3,
        share_embeddings: bool = True,
        tie_output: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_integers(
            optional=("num_decoder_layers",),
            num_layers=num_layers,
            num_decoder_layers=num_decoder_layers,
            d_model=d_model,
            units=units,
        )
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.num_layers = num_layers
        self.num_decoder_layers = num_decoder_layers
        self.d_model = d_model
        self.units = units
        self.cell = cell
        self.bidirectional = bidirectional
        self.attention = attention
        self.score = score
        self.input_feeding = input_feeding
        self.dropout = dropout
        self.share_embeddings = share_embeddings
        self.tie_output = tie_output
        source_embedding, target_embedding = self.new_embeddings()
        layers = dict(units=units, cell=cell, dropout=dropout, dtype=self.dtype_policy)
        self.encoder = RnnEncoder(
            source_embedding, num_layers, bidirectional=bidirectional, **layers, name="encoder"
        )
        self.decoder = RnnDecoder(
            target_embedding,
            num_decoder_layers or num_layers,
            attention=attention,
            score=score,
            input_feeding=input_feeding,
            **layers,
            name="decoder",
        )
        if not tie_output:
            self.output_layer = self.new_output_layer(self.output_vocab_size)
        self.build_when_made(dict.fromkeys(self.id_ranges, (None, None)))

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        width = self.encoder.output_dim
        decoder = self.decoder, (None, None), (None, None, width), (None, width)
        output = self.output_layer, (None, None, self.d_model)
        build_parts(self, (self.encoder, (None, None)), decoder, output)

    def call(
        self,
        inputs: dict[str, Tensor],
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        source_ids, target_ids = source_and_target(inputs)
        hidden = self.decoder(
            target_ids,
            **self.read_source(source_ids, training),
            return_attention_weights=return_attention_weights,
            training=training,
        )
        if not return_attention_weights:
            return self.predict_tokens(hidden)
        hidden, weights = hidden
        return self.project(hidden), {"cross": weights} if weights else {}

    def read_source(self, source_ids: Tensor, training: bool = False) -> dict[str, Tensor]:
        is_real = padding_mask(source_ids)
        encoder_output, encoder_state = self.encoder(
            source_ids, padding_mask=is_real, return_state=True, training=training
        )
        return {
            "encoder_output": encoder_output,
            "encoder_state": encoder_state,
            "source_padding_mask": is_real,
        }
