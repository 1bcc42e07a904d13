"""WordPiece without case and accents, as in the uncased models of BERT."""

from collections.abc import Iterable

import tensorflow as tf
import tensorflow_text

from keras_transformer.tokenizers.word_piece_tokenizer import WordPieceTokenizer
from keras_transformer.types import Self


class UncasedWordPieceTokenizer(WordPieceTokenizer):
    """A `WordPieceTokenizer` that removes accents and case before it splits a text.

    As in BERT's own code (https://arxiv.org/abs/1810.04805): the text is decomposed (NFD),
    non-spacing marks are removed, and the rest is lowercased. So `decode` returns lowercase text
    without accents.

    Args, Raises: see `WordPieceTokenizer`.
    """

    SUFFIX = ".uncased.vocab.txt"
    NORMALIZATION_FORM = None  # the text stays decomposed

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int) -> Self:
        texts = _uncased(tf.constant(list(sentences), tf.string))
        return super().train([text.decode() for text in texts.numpy()], vocab_size)

    def _tokenize(self, texts):
        return super()._tokenize(_uncased(texts))


def _uncased(texts):
    texts = tensorflow_text.normalize_utf8(texts, "NFD")
    texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
    return tf.strings.lower(texts, encoding="utf-8")
