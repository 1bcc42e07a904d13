"""The graph side of `MarianTokenizer`, by tensorflow-text."""

import tensorflow as tf

from keras_transformer.special_ids import UNKNOWN_ID
from keras_transformer.tokenizers.graph.base import GraphTokenizer
from keras_transformer.tokenizers.graph.sentence_piece import sentence_piece_ops

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
