"""The graph sides of `SentencePieceTokenizer` and `MarianTokenizer`, by tensorflow-text."""

import hashlib

import tensorflow as tf
import tensorflow_text
from tensorflow_text.python.ops import sentencepiece_tokenizer as tf_text_module

from keras_transformer.special_ids import UNKNOWN_ID
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


CUT = b"\xff"  # no byte of UTF-8


class MarianGraph(GraphTokenizer):
    """A SentencePiece model and a vocabulary of its own as operations of TensorFlow.

    Args:
        model: bytes of the SentencePiece model.
        ids: dict from tokens to ids.
        written: what each token adds to a text.
        added: regular expression of the added tokens; "" if there are none.
        head: that of what is one token at the beginning of a part.
    """

    def __init__(self, model, ids, written, added, head):
        super().__init__(name="marian_tokenizer")
        self._written, self._added_pattern, self._head_pattern = written, added, head
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([*ids]), tf.constant([*ids.values()], tf.int32)
            ),
            default_value=UNKNOWN_ID,
        )
        self._ops = sentence_piece_ops(model, tf.string)

    def _tokenize(self, texts):
        if not self._added_pattern:
            return self._tokenize_parts(texts)
        # tensorflow_text's regex_split would lose what follows a null character
        texts = tf.strings.regex_replace(texts, f"({self._added_pattern})", rb"%b\1%b" % (CUT, CUT))
        parts = tf.strings.split(texts, CUT)
        return parts.with_values(self._tokenize_parts(parts.values)).merge_dims(1, 2)

    def _tokenize_parts(self, parts):
        """As `_tokenize`; an added token or a tag is one token at the beginning of a part alone."""
        head = self._head_pattern
        has_head = tf.strings.regex_full_match(parts, f"(?s)(?:{head}).*")
        heads = tf.strings.regex_replace(parts, f"(?s)^({head}).*$", r"\1")
        heads = tf.ragged.boolean_mask(heads[:, None], has_head[:, None])
        rest = tf.strings.regex_replace(parts, f"(?s)^(?:{head})", "")
        pieces = tf.concat([heads, self._ops.tokenize(rest)], axis=1)
        return tf.ragged.map_flat_values(self._table.lookup, pieces)

    def _detokenize(self, ids):
        pieces = tf.ragged.map_flat_values(tf.gather, tf.constant(self._written), ids)
        return tf.strings.strip(tf.strings.reduce_join(pieces, axis=1))
