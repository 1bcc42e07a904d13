"""Tokenizers as operations of TensorFlow, for exports and `tf.data`: what has all of them.

Shapes: B batch (sentences), S source length.
"""

import abc
import re

import numpy as np
import tensorflow as tf

from keras_transformer.errors import InputError
from keras_transformer.files.text import BLANK, without_surrogates
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers.patterns import PIECE_CHARACTERS, WHITE_SPACE


class GraphTokenizer(tf.Module, abc.ABC):
    """The graph side of a `Tokenizer`, whose methods of the same names say what these do."""

    @classmethod
    def of(cls, tokenizer, *arguments):
        """Returns the graph side of a `Tokenizer`; `arguments` are those of the class.

        Its tables belong to no graph, also where it is used first while one is traced.
        """
        with tf.init_scope():
            graph = cls(*arguments)
            graph._prepare(tokenizer)
        return graph

    def _prepare(self, tokenizer):
        """Takes what `copies` and `decode` need of the `Tokenizer`."""
        self._vocab_size = tokenizer.vocab_size
        places = np.arange(self._vocab_size)
        self._is_unknown = np.isin(places, tokenizer.unknown_ids)
        self._says_something = np.isin(places, list(tokenizer._says_something))
        before = rf"^{WHITE_SPACE}*(?:{'|'.join(map(re.escape, tokenizer._tags))})?"
        self._around_texts = rf"{before}{BLANK}*$|{before}{WHITE_SPACE}*|{WHITE_SPACE}*$"

    @abc.abstractmethod
    def _tokenize(self, texts):
        """String tensor `(B,)` of valid UTF-8 to ragged int32 `(B, None)`."""

    @abc.abstractmethod
    def _detokenize(self, ids):
        """Ragged int32 `(B, None)` of ids within the vocabulary to a string tensor `(B,)`."""

    def encode(self, texts):
        return self._tokenize(valid_texts(texts))

    def encode_truncated(self, texts, max_tokens):
        texts = valid_texts(texts)
        # The rest is cut before encoding: SentencePiece's time grows with the square of a run of
        # unknown characters, and one request must not block a server.
        heads = tf.strings.substr(texts, 0, max_tokens * PIECE_CHARACTERS, unit="UTF8_CHAR")
        tokens = self.encode(heads)
        is_cut = tf.strings.length(heads) < tf.strings.length(texts)
        truncated = is_cut | (tokens.row_lengths() > max_tokens)
        end = tf.fill([tokens.nrows(), 1], END_ID)
        return tf.concat([tokens[:, :max_tokens], end], axis=1), truncated

    def encode_padded(self, texts, max_tokens):
        ids, truncated = self.encode_truncated(texts, max_tokens)
        return padded(ids), truncated

    def copies(self, texts, ids):
        copies = tf.strings.regex_replace(valid_texts(texts), self._around_texts, "")
        says_something = tf.reduce_any(tf.gather(self._says_something, ids), axis=1)
        is_copied = ~says_something | (copies == "")
        is_unknown = tf.reduce_any(tf.gather(self._is_unknown, ids), axis=1)
        return is_copied, tf.where(is_unknown, copies, "")

    def decode(self, ids):
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ids = tf.ensure_shape(tf.convert_to_tensor(ids), [None, None])
        known = (ids >= 0) & (ids < self._vocab_size)
        ids = tf.cast(tf.where(known, ids, UNKNOWN_ID), tf.int32)
        before_end = tf.cumsum(tf.cast(ids == END_ID, tf.int32), axis=1) == 0
        kept = before_end & (ids != PAD_ID) & (ids != START_ID)
        return self._detokenize(tf.ragged.boolean_mask(ids, kept))


def padded(ids):
    """Returns ragged ids `(B, None)` as int32 `(B, S)`, padded with 0; S is 1 when B is 0."""
    ids = ids.to_tensor(PAD_ID)
    missing_width = tf.cast(tf.shape(ids)[1] == 0, tf.int32)
    return tf.pad(ids, [[0, 0], [0, missing_width]], constant_values=PAD_ID)


def valid_texts(texts):
    """Returns strings `(B,)`, with U+FFFD instead of invalid UTF-8; refuses another rank."""
    try:
        texts = tf.convert_to_tensor(texts, tf.string)
    except ValueError:
        if not isinstance(texts, list | tuple | np.ndarray):
            raise
        texts = tf.convert_to_tensor([without_surrogates(text) for text in texts], tf.string)
    if texts.shape.rank != 1:
        raise InputError(f"Expected texts of shape (B,). Received: shape={texts.shape}")
    texts = tf.ensure_shape(texts, [None])  # a server does not check the shape of its input
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
