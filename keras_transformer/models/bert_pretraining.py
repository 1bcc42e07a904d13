"""The two objectives that BERT is trained with before it learns a task (section 3.1 of the paper).

Shapes: B batch, T length, M masked positions, D d_model, H heads, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers import Dense, LayerNormalization
from keras_transformer.layers.feed_forward import activation_function
from keras_transformer.models.base import build_parts
from keras_transformer.models.bert import Bert, BertHead
from keras_transformer.types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class BertPretraining(BertHead):
    """Predicts the tokens that were masked and, by argument, whether two sentences belong together.

    LayerNorm(gelu(x W + b)) E^T + c are the logits of a token with the vector x, with the table E
    of the token embedding. The logits of the next sentence come from the pooled output.

    Source: Devlin et al., 2019, section 3.1, https://arxiv.org/abs/1810.04805; the layers before
    E^T are those of the paper's own code. `data.MaskedTokenBatches` makes what `fit` needs, with
    `training.TokenCrossEntropy(label_smoothing=0.0)` as the loss of one objective or of both.

    Args:
        bert: the `Bert` to train; without next_sentence, one with pooler=False, because nothing
            would train the pooler.
        next_sentence: whether to predict too whether the second segment follows the first in the
            text (0) or was drawn at random (1).

    Call arguments:
        inputs: those of `Bert`, and "masked_positions" `(B, M)`, integers in `[0, T)`: the
            positions whose tokens are predicted. Without them, all are. The logits of all positions
            take V / D times the memory of a block's output.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        The logits `(B, M, V)` or `(B, T, V)`; with next_sentence, {"masked_tokens": these,
        "next_sentence": `(B, 2)`}. With return_attention_weights, a pair with the weights of
        `Bert`. A masked position outside of the text gets the same finite logits in every row.

    Raises:
        ValueError: `bert` is no `Bert`, or has no pooler and next_sentence is True.

    Example:
    >>> bert = Bert(100, num_layers=1, d_model=16, ff_dim=32, num_heads=2, pooler=False)
    >>> model = BertPretraining(bert)
    >>> ids, positions = np.array([[2, 5, 99, 6, 3]]), np.array([[2]])
    >>> model({"ids": ids, "masked_positions": positions}).shape
    (1, 1, 100)
    """

    def __init__(self, bert: Bert, next_sentence: bool = False, **kwargs: Any) -> None:
        super().__init__(bert, **kwargs)
        self.next_sentence = next_sentence
        policy = self.dtype_policy
        activation = activation_function(bert.activation)
        self.dense = Dense(bert.d_model, activation, dtype=policy, name="dense")
        self.norm = LayerNormalization(bert.layer_norm_epsilon, dtype=policy, name="norm")
        self.output_bias: Any = None
        self.next_sentence_layer = None
        if next_sentence:
            self.check_pooler()
            self.next_sentence_layer = Dense(2, dtype=policy, name="next_sentence_layer")
        self.build_when_made((None, None))

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        d_model = self.bert.d_model
        head = [(layer, (None, None, d_model)) for layer in (self.dense, self.norm)]
        build_parts(self, (self.bert,), *head, (self.next_sentence_layer, (None, d_model)))
        if self.output_bias is None:
            self.output_bias = self.add_weight(
                name="output_bias", shape=(self.bert.vocab_size,), initializer="zeros"
            )

    def call(
        self,
        inputs: dict[str, Tensor],
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        inputs = dict(inputs) if isinstance(inputs, dict) else {"ids": inputs}
        positions = inputs.pop("masked_positions", None)
        outputs, weights = self.encode(inputs, return_attention_weights, training)
        x = outputs["sequence_output"]
        if positions is not None:
            x = _at(positions, x)
        logits = self.bert.token_embedding.project(self.norm(self.dense(x)))
        logits = logits + ops.cast(self.output_bias, logits.dtype)
        if self.next_sentence_layer is not None:
            next_sentence = self.next_sentence_layer(outputs["pooled_output"])
            logits = {"masked_tokens": logits, "next_sentence": next_sentence}
        return (logits, weights) if return_attention_weights else logits


def _at(positions, x):
    """Returns `(B, M, D)`, the vectors of `x` `(B, T, D)` at `positions` `(B, M)`.

    They come by a product, which gives zeros where a position is outside. A gather would give an
    error, NaN or another token's vector, each on another backend.
    """
    sizes = {positions.shape[0], x.shape[0]} - {None}
    if len(positions.shape) != 2 or len(sizes) > 1:
        raise InputError(
            "masked_positions must have shape (B, M), with the B of the ids. Received: "
            f"masked_positions.shape={tuple(positions.shape)}, B={x.shape[0]}."
        )
    positions = ops.cast(positions, "int32")[:, :, None]
    chosen = ops.equal(positions, ops.arange(ops.shape(x)[1], dtype="int32"))  # (B, M, T)
    return ops.matmul(ops.cast(chosen, x.dtype), x)
