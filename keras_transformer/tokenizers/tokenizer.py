"""The interface of all tokenizers of the package.

Shapes: B batch (sentences), S source length.
"""

import abc
import functools
import pathlib
import re
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.files.text import BLANK, is_blank, without_surrogates
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers.sentence_piece_model import SPACE
from keras_transformer.types import StrPath, Tensor, Texts

PIECE_CHARACTERS = 64
"""More characters than any token has, including the white space around it."""

WHITE_SPACE = r"[\t-\r\x1c-\x20\x{85}\pZ]"  # what `str.strip` removes
TAG = re.compile(r">>.*?<<", re.DOTALL)
"""The tag of a target language, such as `>>deu<<`, at the beginning of a text."""


class Tokenizer(tf.Module, abc.ABC):
    """Turns text into ids and back, inside a TensorFlow graph; an export contains it as it is.

    Ids 0 to 3 are padding, unknown, start and end in every tokenizer (`special_ids`). `encode`
    returns neither start nor end token; the code that builds a model's input adds them.
    Text is UTF-8: invalid bytes become U+FFFD before the text is encoded.
    """

    SUFFIX = ""
    """Suffix of the file of a saved tokenizer."""

    @property
    @abc.abstractmethod
    def pieces(self) -> list[str]:
        """The vocabulary as a list of strings: item i is the token with id i."""

    @property
    @abc.abstractmethod
    def surfaces(self) -> list[bytes]:
        """What each token adds to a text, in UTF-8, with the space before a word.

        b"" for tokens that never stand in a text: padding, unknown, start, end and other marks.
        """

    @property
    def unknown_ids(self) -> list[int]:
        """The tokens of characters that the vocabulary lacks: the unknown one, and bytes."""
        return [UNKNOWN_ID]

    @property
    @abc.abstractmethod
    def serialized(self) -> bytes:
        """The bytes of the single file that contains the whole tokenizer."""

    @abc.abstractmethod
    def _tokenize(self, texts):
        """String tensor `(B,)` of valid UTF-8 to ragged int32 `(B, None)`."""

    @abc.abstractmethod
    def _detokenize(self, ids):
        """Ragged int32 `(B, None)` of ids within the vocabulary to a string tensor `(B,)`."""

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, texts: Tensor) -> tf.RaggedTensor:
        """Returns the ids of each text, ragged int32 `(B, None)`, without start and end token.

        Args:
            texts: strings `(B,)`, a tensor or a list; B may be 0. An empty text has no tokens.
        Raises:
            ValueError: `texts` is one string, or has more than one axis.
        """
        return self._tokenize(valid_texts(texts))

    def encode_truncated(self, texts: Tensor, max_tokens: int) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns the ids of each text, cut to a length and ended by the end token.

        Args:
            texts: strings `(B,)`.
            max_tokens: maximum tokens of a text, without the end token.
        Returns:
            `(ids, truncated)`: ragged int32 `(B, None)`; and bool `(B,)`, True if the text was cut.
        """
        texts = valid_texts(texts)
        # The rest is cut before encoding: SentencePiece's time grows with the square of a run of
        # unknown characters, and one request must not block a server.
        heads = tf.strings.substr(texts, 0, max_tokens * PIECE_CHARACTERS, unit="UTF8_CHAR")
        tokens = self.encode(heads)
        is_cut = tf.strings.length(heads) < tf.strings.length(texts)
        truncated = is_cut | (tokens.row_lengths() > max_tokens)
        end = tf.fill([tokens.nrows(), 1], END_ID)
        return tf.concat([tokens[:, :max_tokens], end], axis=1), truncated

    def encode_padded(self, texts: Tensor, max_tokens: int) -> tuple[tf.Tensor, tf.Tensor]:
        """As `encode_truncated`, with the ids as int32 `(B, S)`, padded with 0.

        S is 1 + the number of tokens of the longest text, and 1 when B is 0.
        """
        ids, truncated = self.encode_truncated(texts, max_tokens)
        return padded(ids), truncated

    def copies(self, texts: Tensor, ids: Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns which texts are answered by a copy, as no token says anything, and the copies.

        Such a text is blank (`files.text.BLANK`), or unknown as a whole, as `-` and `1` are to a
        vocabulary without them. A model would answer something that is not there.

        Args:
            texts: strings `(B,)`.
            ids: their ids as from `encode_truncated` or `encode_padded`.
        Returns:
            `(is_copied, copies)`: bool `(B,)`; and strings `(B,)`, each text without its tag and
            the white space around it, or "" if it is blank or all its tokens are known.
        """
        copies = tf.strings.regex_replace(valid_texts(texts), self._around_texts, "")
        says_something = tf.reduce_any(tf.gather(self._says_something, ids), axis=1)
        is_copied = ~says_something | (copies == "")
        is_unknown = tf.reduce_any(tf.gather(self._is_unknown, ids), axis=1)
        return is_copied, tf.where(is_unknown, copies, "")

    @functools.cached_property
    def _says_something(self):
        """Bool `(V,)`: False for special tokens, unknown ones, blank ones and tags."""
        words = [TAG.sub("", piece).replace(SPACE, "") for piece in self.pieces]
        says = np.array([i > END_ID and not is_blank(word) for i, word in enumerate(words)])
        return says & ~self._is_unknown

    @functools.cached_property
    def _is_unknown(self):
        """Bool `(V,)`: True for `unknown_ids`."""
        return np.isin(np.arange(self.vocab_size), self.unknown_ids)

    @functools.cached_property
    def _around_texts(self):
        """Regular expression of a blank text, and of the tag and white space around others."""
        tags = "|".join(re.escape(piece) for piece in self.pieces if TAG.fullmatch(piece))
        before = rf"^{WHITE_SPACE}*(?:{tags})?"
        return rf"{before}{BLANK}*$|{before}{WHITE_SPACE}*|{WHITE_SPACE}*$"

    def decode(self, ids: Tensor) -> tf.Tensor:
        """Returns the text of each row of ids: strings `(B,)`, always valid UTF-8.

        Args:
            ids: int `(B, None)`, dense or ragged. The first end token and everything after it are
                omitted, and so are padding and start tokens. An id outside the vocabulary is read
                as the unknown token.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ids = tf.ensure_shape(tf.convert_to_tensor(ids), [None, None])
        known = (ids >= 0) & (ids < self.vocab_size)
        ids = tf.cast(tf.where(known, ids, UNKNOWN_ID), tf.int32)
        before_end = tf.cumsum(tf.cast(ids == END_ID, tf.int32), axis=1) == 0
        kept = before_end & (ids != PAD_ID) & (ids != START_ID)
        return self._detokenize(tf.ragged.boolean_mask(ids, kept))

    @abc.abstractmethod
    def encode_sampled(self, sentences: Texts, sampling: float, seed: int) -> Iterator[list[int]]:
        """Returns one random segmentation of each sentence (subword regularization).

        Runs on the host, outside any graph. The draw of a sentence depends on `seed` and on the
        number of the sentence in the list: not on other sentences, calls, threads or processes.

        Args:
            sentences: list of strings.
            sampling: strength of the sampling, above 0; its meaning depends on the subclass.
            seed: int from 0.
        Returns:
            Iterator over the ids of each sentence: lists of int, without start and end token.
        Raises:
            ValueError: the tokenizer does not support sampling.
        """

    def to_pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each of `ids` (1-D): list of strings."""
        pieces = self.pieces  # a model may have more embeddings
        return [pieces[i if i < len(pieces) else UNKNOWN_ID] for i in ids]

    def __reduce__(self):
        return type(self), (self.serialized,)

    def save(self, directory: StrPath, name: str = "tokenizer") -> None:
        """Writes the tokenizer to one file in `directory`, atomically."""
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(directory / f"{name}{self.SUFFIX}") as partial:
            partial.write_bytes(self.serialized)


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
