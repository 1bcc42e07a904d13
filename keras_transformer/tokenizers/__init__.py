"""Text to ids and back, inside the graph: SentencePiece and WordPiece with one interface."""

import pathlib

from keras_transformer.errors import InputError
from keras_transformer.files.regular import VOCABULARY_BYTES, read_regular
from keras_transformer.tokenizers.marian_tokenizer import MarianTokenizer
from keras_transformer.tokenizers.sentence_piece_tokenizer import SentencePieceTokenizer
from keras_transformer.tokenizers.tokenizer import Tokenizer
from keras_transformer.tokenizers.word_piece_tokenizer import (
    UncasedWordPieceTokenizer,
    WordPieceTokenizer,
)
from keras_transformer.types import StrPath

__all__ = [
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "UncasedWordPieceTokenizer",
    "WordPieceTokenizer",
    "from_file",
    "load",
]

CLASSES = SentencePieceTokenizer, WordPieceTokenizer, UncasedWordPieceTokenizer, MarianTokenizer


def load(directory: StrPath, name: str = "tokenizer") -> Tokenizer:
    """Returns the tokenizer that `Tokenizer.save(directory, name)` wrote.

    Raises:
        ValueError: there is no such file, or there are several.
    """
    paths = {cls: pathlib.Path(directory) / f"{name}{cls.SUFFIX}" for cls in CLASSES}
    found = {cls: path for cls, path in paths.items() if path.exists()}
    if len(found) != 1:
        expected = " or ".join(path.name for path in paths.values())
        raise InputError(
            f"Expected a tokenizer in one file, {expected}. "
            f"Received: {directory} with {len(found)} of them."
        )
    ((cls, path),) = found.items()
    content = read_regular(directory, path.name, "a tokenizer file", VOCABULARY_BYTES)
    return _tokenizer(cls, content, path)


def from_file(path: StrPath) -> Tokenizer:
    """Returns the tokenizer in a user's file, with any layout of special ids.

    Args:
        path: a WordPiece vocabulary if the name ends in `.txt`, an uncased one if it ends in
            `.uncased.vocab.txt`; otherwise a SentencePiece model.
    Raises:
        ValueError: the file is missing or contains something else.
    """
    path = pathlib.Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"Expected a tokenizer file. Received: {path}: {error.strerror}") from None
    if path.suffix != ".txt":
        return _tokenizer(SentencePieceTokenizer, content, path)
    is_uncased = path.name.endswith(UncasedWordPieceTokenizer.SUFFIX)
    return _tokenizer(
        UncasedWordPieceTokenizer if is_uncased else WordPieceTokenizer, content, path
    )


def _tokenizer(cls, content, path):
    try:
        return cls(content)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
