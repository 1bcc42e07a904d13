"""The interface of all tokenizers of the package.

Shapes: B batch (sentences), S source length.
"""

import abc
import functools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.files.text import is_blank, without_surrogates
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers.patterns import PIECE_CHARACTERS, TAG
from keras_transformer.tokenizers.sentence_piece_model import SPACE
from keras_transformer.types import StrPath, Tensor, Texts

if TYPE_CHECKING:
    from keras_transformer.tokenizers.graph.base import GraphTokenizer


class Tokenizer(abc.ABC):
    """Turns text into ids and back, on the host or inside a TensorFlow graph.

    The methods whose names end in `_on_host` need no TensorFlow; they take and return lists. The
    others are operations of TensorFlow, which take and return tensors, also inside a graph, and
    which an export contains. Both give the same ids and texts.

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
    def _tokenize_on_host(self, texts):
        """List of str to the list of the ids of each."""

    @abc.abstractmethod
    def _detokenize_on_host(self, rows):
        """List of lists of ids within the vocabulary to a list of str."""

    @abc.abstractmethod
    def _in_graph(self):
        """Returns the `GraphTokenizer` with the same vocabulary."""

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode_on_host(self, texts: Texts) -> list[list[int]]:
        """Returns the ids of each text, without start and end token; an empty text has none.

        Args:
            texts: list of str, or of bytes in UTF-8.
        Raises:
            ValueError: `texts` is one string, or a list of something else.
        """
        return self._tokenize_on_host(list(map(_valid_text, _listed(texts))))

    def encode_truncated_on_host(
        self, texts: Texts, max_tokens: int
    ) -> tuple[list[list[int]], list[bool]]:
        """As `encode_truncated`: the ids of each text with the end token, and which were cut."""
        valid = list(map(_valid_text, _listed(texts)))
        heads = [text[: max_tokens * PIECE_CHARACTERS] for text in valid]
        rows = self._tokenize_on_host(heads)
        truncated = [
            len(head) < len(text) or len(row) > max_tokens
            for head, text, row in zip(heads, valid, rows, strict=True)
        ]
        return [[*row[:max_tokens], END_ID] for row in rows], truncated

    def copies_on_host(
        self, texts: Texts, rows: Sequence[Sequence[int]]
    ) -> tuple[list[bool], list[str]]:
        """As `copies`, for lists of texts and of their ids."""
        copies = [self._without_surroundings(_valid_text(text)) for text in _listed(texts)]
        is_copied = [
            copy == "" or self._says_something.isdisjoint(row)
            for copy, row in zip(copies, rows, strict=True)
        ]
        unknown = frozenset(self.unknown_ids)
        has_unknown = (not unknown.isdisjoint(row) for row in rows)
        return is_copied, [
            copy if is_unknown else "" for copy, is_unknown in zip(copies, has_unknown, strict=True)
        ]

    def decode_on_host(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """As `decode`, for an array `(B, T)` of NumPy or rows of ids."""
        return self._detokenize_on_host([self._kept(np.asarray(row).tolist()) for row in rows])

    def _kept(self, row):
        """Returns the ids before the end token that `decode` reads."""
        row = row[: row.index(END_ID)] if END_ID in row else row
        size = self.vocab_size
        known = (i if 0 <= i < size else UNKNOWN_ID for i in row)
        return [i for i in known if i not in (PAD_ID, START_ID)]

    def _without_surroundings(self, text):
        """Returns a text without its tag and the white space around it; "" if it is blank."""
        text = text.strip()
        tag = next(filter(text.startswith, self._tags), "")
        text = text.removeprefix(tag).strip()
        return "" if is_blank(text) else text

    @functools.cached_property
    def _tags(self):
        return [piece for piece in self.pieces if TAG.fullmatch(piece)]

    @functools.cached_property
    def _says_something(self):
        """The ids of tokens that are not special, unknown, blank or tags."""
        words = (TAG.sub("", piece).replace(SPACE, "") for piece in self.pieces)
        says = {i for i, word in enumerate(words) if i > END_ID and not is_blank(word)}
        return frozenset(says.difference(self.unknown_ids))

    @functools.cached_property
    def graph(self) -> "GraphTokenizer":
        """The operations of TensorFlow, made at the first use; a `tf.Module` for exports."""
        return self._in_graph()

    def encode(self, texts: Tensor) -> Tensor:
        """Returns the ids of each text, ragged int32 `(B, None)`, without start and end token.

        Args:
            texts: strings `(B,)`, a tensor or a list; B may be 0. An empty text has no tokens.
        Raises:
            ValueError: `texts` is one string, or has more than one axis.
        """
        return self.graph.encode(texts)

    def encode_truncated(self, texts: Tensor, max_tokens: int) -> tuple[Tensor, Tensor]:
        """Returns the ids of each text, cut to a length and ended by the end token.

        Args:
            texts: strings `(B,)`.
            max_tokens: maximum tokens of a text, without the end token.
        Returns:
            `(ids, truncated)`: ragged int32 `(B, None)`; and bool `(B,)`, True if the text was cut.
        """
        return self.graph.encode_truncated(texts, max_tokens)

    def encode_padded(self, texts: Tensor, max_tokens: int) -> tuple[Tensor, Tensor]:
        """As `encode_truncated`, with the ids as int32 `(B, S)`, padded with 0.

        S is 1 + the number of tokens of the longest text, and 1 when B is 0.
        """
        return self.graph.encode_padded(texts, max_tokens)

    def copies(self, texts: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
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
        return self.graph.copies(texts, ids)

    def decode(self, ids: Tensor) -> Tensor:
        """Returns the text of each row of ids: strings `(B,)`, always valid UTF-8.

        Args:
            ids: int `(B, None)`, dense or ragged. The first end token and everything after it are
                omitted, and so are padding and start tokens. An id outside the vocabulary is read
                as the unknown token.
        """
        return self.graph.decode(ids)

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


def _listed(texts):
    """Returns a list of texts; refuses a single one."""
    if not isinstance(texts, list | tuple):
        array = np.asarray(texts)
        if array.ndim != 1:
            raise InputError(f"Expected texts of shape (B,). Received: shape={array.shape}")
        texts = array.tolist()
    return texts


def _valid_text(text):
    """Returns a str, with U+FFFD instead of invalid UTF-8; refuses anything but str and bytes."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    if not isinstance(text, str):
        raise InputError(f"Expected texts of shape (B,). Received: {text!r:.200} among them.")
    return without_surrogates(text)
