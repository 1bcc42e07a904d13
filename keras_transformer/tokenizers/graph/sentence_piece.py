"""The graph side of `SentencePieceTokenizer`, by tensorflow-text."""

import hashlib

import tensorflow as tf
import tensorflow_text
from tensorflow_text.python.ops import sentencepiece_tokenizer as tf_text_module

from keras_transformer.tokenizers.graph.base import GraphTokenizer


class SharedModel(tf_text_module._SentencepieceModelResource):
    """The model as a TensorFlow resource with a name.

    In tensorflow-text, the resource has no name and belongs to a kernel in TensorFlow's cache.
    Setting a seed (`keras.utils.set_random_seed`) clears that cache, and every tokenizer stops
    working. This class depends on private parts of tensorflow-text: its base class with the
    attribute `_model` and the method `_create_resource`, and
    `SentencepieceTokenizer._model_resource`.
    """

    def _create_resource(self):
        name = f"sentencepiece_{hashlib.sha256(self._model).hexdigest()}"
        create = tf_text_module.gen_sentencepiece_tokenizer.sentencepiece_op
        return create(model=self._model, shared_name=name)


class SentencePieceGraph(GraphTokenizer):
    """A SentencePiece model as operations of TensorFlow.

    Args:
        model: its bytes.
    """

    def __init__(self, model):
        super().__init__(name="sentence_piece_tokenizer")
        self._ops = sentence_piece_ops(model, tf.int32)

    def _tokenize(self, texts):
        return self._ops.tokenize(texts)

    def _detokenize(self, ids):
        return self._ops.detokenize(ids)


def sentence_piece_ops(model, out_type):
    """Returns the tokenizer of tensorflow-text, with a resource that outlives its cache."""
    ops = tensorflow_text.SentencepieceTokenizer(model=model, out_type=out_type)
    ops._model_resource = SharedModel(model, name=None)
    return ops
