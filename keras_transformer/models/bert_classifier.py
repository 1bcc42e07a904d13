"""BERT for a task of one's own (Devlin et al., 2019, section 4, https://arxiv.org/abs/1810.04805).

Shapes: B batch, T length, H heads, C classes.
"""

from typing import Any

import keras

from keras_transformer.errors import check_positive_integers
from keras_transformer.layers import Dense, Dropout
from keras_transformer.models.base import build_parts
from keras_transformer.models.bert import Bert, BertHead
from keras_transformer.types import Shape, Tensor


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
