"""BERT (Devlin et al., 2019, https://arxiv.org/abs/1810.04805), and classifiers on top of it.

Shapes: B batch, T length, D d_model, H heads, C classes.
"""

from typing import Any

import keras

from keras_transformer.config.presets import model_preset
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers import (
    BertEmbedding,
    Dense,
    Dropout,
    Encoder,
    TokenEmbedding,
    padding_mask,
)
from keras_transformer.layers.bert_embedding import ids_and_segments
from keras_transformer.layers.stack import check_num_heads
from keras_transformer.models.base import BaseModel, build_parts
from keras_transformer.types import Self, Shape, Tensor

POSITIONS = ("learned", None)


@keras.saving.register_keras_serializable("keras_transformer")
class Bert(BaseModel):
    """The encoder of BERT: one vector for each token, and one for the whole text.

    Each token attends to the tokens before and after it. `BertPretraining` puts the two objectives
    of the paper on top of it, `BertClassifier` and `BertTokenClassifier` a task of your own. All of
    them may share one `Bert`.

    The defaults are the paper's base model (section 3). Two things differ from the paper's code:
    dense kernels start as Keras starts them, not with a standard deviation of 0.02, and there is no
    dropout on the attention weights.

    Args:
        vocab_size: number of tokens in the vocabulary.
        num_layers: number of blocks.
        d_model: D, the width of the model.
        ff_dim: width of the feed-forward networks' inner layer.
        num_heads: H, which must divide D.
        dropout: rate on the embeddings and on each sublayer's output.
        activation: activation of the feed-forward networks; "gelu" is the exact one.
        positions: "learned", or None for a model that does not know the order of its tokens.
        max_length: maximum input length in tokens, if there are positions.
        num_segments: number of segments, such as the two sentences of a pair.
        pooler: whether there is a pooled output.
        layer_norm_epsilon: see `LayerNormalization`.

    Call arguments:
        inputs: {"ids": `(B, T)`, "segment_ids": `(B, T)`}, integers, padded with id 0 at the end.
            The first token is the class token (`special_ids.START_ID`), and a separator
            (`special_ids.END_ID`) ends each segment. Without segment_ids every token is in
            segment 0; ids may then be given without the dict. Segment ids are from 0 to
            num_segments - 1.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        {"sequence_output": `(B, T, D)`, "pooled_output": `(B, D)`}, the second with a pooler alone:
        tanh(x W + b) of the first token's vector x. With return_attention_weights, a pair of this
        dict and {"encoder": `[(B, H, T, T)]`}, with one list entry per layer. What stands at
        padding is finite and means nothing, also in a row that is all padding.

    Raises:
        ValueError: sizes below 1, num_heads not dividing d_model, unknown positions, or inputs that
            `BertEmbedding` refuses.

    Example:
    >>> bert = Bert(100, num_layers=1, d_model=16, ff_dim=32, num_heads=2)
    >>> outputs = bert({"ids": np.array([[2, 5, 6, 3]])})
    >>> outputs["sequence_output"].shape
    (1, 4, 16)
    >>> outputs["pooled_output"].shape
    (1, 16)
    """

    def __init__(
        self,
        vocab_size: int,
        num_layers: int = 12,
        d_model: int = 768,
        ff_dim: int = 3072,
        num_heads: int = 12,
        dropout: float = 0.1,
        activation: str = "gelu",
        positions: str = "learned",
        max_length: int = 512,
        num_segments: int = 2,
        pooler: bool = True,
        layer_norm_epsilon: float = 1e-12,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that come as floats to bfloat16
        if positions not in POSITIONS:
            raise InputError(f"positions must be one of {POSITIONS}. Received: {positions=}.")
        check_num_heads(d_model, num_heads)
        self.vocab_size = vocab_size
        self.num_layers = num_layers
        self.d_model = d_model
        self.ff_dim = ff_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.activation = activation
        self.positions = positions
        self.max_length = max_length
        self.num_segments = num_segments
        self.pooler = pooler
        self.layer_norm_epsilon = layer_norm_epsilon

        policy = self.dtype_policy
        embedding = BertEmbedding(
            vocab_size,
            d_model,
            max_length if positions == "learned" else None,
            num_segments,
            layer_norm_epsilon,
            dtype=policy,
            name="embedding",
        )
        self.encoder = Encoder(
            embedding,
            num_layers,
            num_heads,
            ff_dim,
            dropout=dropout,
            activation=activation,
            positions=None,  # the embedding adds them before its normalization
            layer_norm_epsilon=layer_norm_epsilon,
            dtype=policy,
            name="encoder",
        )
        self.pooler_layer = None
        if pooler:
            self.pooler_layer = Dense(d_model, "tanh", dtype=policy, name="pooler_layer")
        self.build_when_made((None, None))

    @classmethod
    def from_preset(cls, name: str, vocab_size: int, **overrides: Any) -> Self:
        """Returns the model of a preset ("bert_base"); `overrides` replace arguments."""
        return cls(vocab_size, **{**model_preset(name, "bert"), **overrides})

    @property
    def token_embedding(self) -> TokenEmbedding:
        """The `TokenEmbedding`, with whose table `BertPretraining` predicts tokens."""
        return self.encoder.embedding.token_embedding

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        pooler = self.pooler_layer, (None, self.d_model)
        build_parts(self, (self.encoder, (None, None)), pooler)

    @property
    def id_ranges(self) -> dict[str, range]:
        return {"ids": range(self.vocab_size), "segment_ids": range(self.num_segments)}

    def call(
        self,
        inputs: Tensor | dict[str, Tensor],
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        ids, _ = ids_and_segments(inputs)
        result = self.encoder(
            inputs,
            padding_mask=padding_mask(ids),
            return_attention_weights=return_attention_weights,
            training=training,
        )
        x, weights = result if return_attention_weights else (result, None)
        outputs = {"sequence_output": x}
        if self.pooler_layer is not None:
            outputs["pooled_output"] = self.pooler_layer(x[:, 0])
        return (outputs, {"encoder": weights}) if return_attention_weights else outputs


class BertHead(BaseModel):
    """A model on top of a `Bert`, which it trains with it. Models that share a `Bert` share it.

    Args:
        bert: `Bert`, with or without trained weights.
    """

    def __init__(self, bert: Bert, **kwargs: Any) -> None:
        if not isinstance(bert, Bert):
            raise InputError(f"bert must be a Bert, such as Bert(30_522). Received: {bert=}.")
        super().__init__(**{"dtype": bert.dtype_policy, **kwargs})
        self.autocast = False  # it would round ids that come as floats to bfloat16
        self.bert = bert

    @property
    def id_ranges(self) -> dict[str, range]:
        return self.bert.id_ranges

    def check_pooler(self) -> None:
        """Raises `InputError` if there is no pooled output, for a subclass that reads it."""
        if not self.bert.pooler:
            raise InputError(
                f"{type(self).__name__} reads the pooled output. Received: a Bert with "
                "pooler=False. Leave pooler=False out."
            )

    def encode(
        self, inputs: Tensor | dict[str, Tensor], return_attention_weights: bool, training: bool
    ) -> tuple[dict[str, Tensor], Any]:
        """Returns the outputs of the `Bert`, a dict, and its attention weights or None."""
        options = dict(return_attention_weights=return_attention_weights, training=training)
        result = self.bert(inputs, **options)
        return result if return_attention_weights else (result, None)


class _Classifier(BertHead):
    """Dropout and a dense layer on one of the outputs of a `Bert`."""

    OUTPUT: str
    """Which output of the `Bert`."""

    def __init__(self, bert: Bert, num_classes: int, dropout: float = 0.1, **kwargs: Any) -> None:
        super().__init__(bert, **kwargs)
        if self.OUTPUT == "pooled_output":
            self.check_pooler()
        check_positive_integers(num_classes=num_classes)
        self.num_classes = num_classes
        self.dropout = dropout
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy)
        self.output_layer = Dense(num_classes, dtype=self.dtype_policy, name="output_layer")
        self.build_when_made((None, None))

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        build_parts(self, (self.bert,), (self.output_layer, (None, self.bert.d_model)))

    def call(
        self,
        inputs: Tensor | dict[str, Tensor],
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        outputs, weights = self.encode(inputs, return_attention_weights, training)
        logits = self.output_layer(self.output_dropout(outputs[self.OUTPUT], training=training))
        return (logits, weights) if return_attention_weights else logits


@keras.saving.register_keras_serializable("keras_transformer")
class BertClassifier(_Classifier):
    """Classifies a text or a pair of texts by the pooled output of BERT.

    Source: Devlin et al., 2019, section 4.1, https://arxiv.org/abs/1810.04805.

    Args:
        bert: the `Bert`, usually one that `BertPretraining` has trained; it is trained further.
            `bert.trainable = False` trains the classifier alone.
        num_classes: C.
        dropout: rate on the pooled output.

    Call arguments:
        inputs: those of `Bert`.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        The logits `(B, C)`, or a pair of them and the weights of `Bert`.

    Raises:
        ValueError: `bert` is no `Bert` or has no pooler; num_classes below 1.

    Example:
    >>> bert = Bert(100, num_layers=1, d_model=16, ff_dim=32, num_heads=2)
    >>> BertClassifier(bert, num_classes=3)({"ids": np.array([[2, 5, 6, 3]])}).shape
    (1, 3)
    """

    OUTPUT = "pooled_output"


@keras.saving.register_keras_serializable("keras_transformer")
class BertTokenClassifier(_Classifier):
    """Classifies each token of a text by its vector, as in finding names.

    Source: Devlin et al., 2019, section 5.3, https://arxiv.org/abs/1810.04805. Give the tokens
    that do not count, such as padding and the later tokens of a word, a sample weight of 0.

    Args:
        bert: see `BertClassifier`; it needs no pooler.
        num_classes: C.
        dropout: rate on the vectors.

    Call arguments: see `BertClassifier`.

    Returns:
        The logits `(B, T, C)`, or a pair of them and the weights of `Bert`.

    Raises:
        ValueError: `bert` is no `Bert`; num_classes below 1.

    Example:
    >>> bert = Bert(100, num_layers=1, d_model=16, ff_dim=32, num_heads=2, pooler=False)
    >>> BertTokenClassifier(bert, num_classes=3)({"ids": np.array([[2, 5, 6, 3]])}).shape
    (1, 4, 3)
    """

    OUTPUT = "sequence_output"
