"""Tokenizers from files: one saved by the package, or one that a user brings."""

import pathlib

from keras_transformer.tokenizers.sentence_piece_tokenizer import SentencePieceTokenizer
from keras_transformer.tokenizers.word_piece_tokenizer import WordPieceTokenizer

CLASSES = (SentencePieceTokenizer, WordPieceTokenizer)


def load(directory, name="tokenizer"):
    """Returns the tokenizer that `Tokenizer.save(directory, name)` wrote.

    Raises:
        ValueError: there is no such file, or one of each kind.
    """
    paths = {cls: pathlib.Path(directory) / f"{name}{cls.SUFFIX}" for cls in CLASSES}
    found = {cls: path for cls, path in paths.items() if path.exists()}
    if len(found) != 1:
        expected = " or ".join(path.name for path in paths.values())
        raise ValueError(
            f"Expected a tokenizer in one file, {expected}. "
            f"Received: {directory} with {len(found)} of them."
        )
    ((cls, path),) = found.items()
    return _read(cls, path)


def from_file(path):
    """Returns the tokenizer in a user's file, with any layout of special ids.

    Args:
        path: a WordPiece vocabulary if the name ends in `.txt`, else a SentencePiece model.
    Raises:
        ValueError: the file is missing, or holds something else.
    """
    path = pathlib.Path(path)
    return _read(WordPieceTokenizer if path.suffix == ".txt" else SentencePieceTokenizer, path)


def _read(cls, path):
    try:
        return cls(path.read_bytes())
    except OSError as error:
        raise ValueError(f"Expected a tokenizer file. Received: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
