"""Text to ids and back, inside the graph: SentencePiece and WordPiece with one interface."""

from keras_transformer.tokenizers.files import from_file, load
from keras_transformer.tokenizers.marian_tokenizer import MarianTokenizer
from keras_transformer.tokenizers.sentence_piece_tokenizer import SentencePieceTokenizer
from keras_transformer.tokenizers.uncased_word_piece_tokenizer import UncasedWordPieceTokenizer
from keras_transformer.tokenizers.word_piece_tokenizer import WordPieceTokenizer

__all__ = [
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "UncasedWordPieceTokenizer",
    "WordPieceTokenizer",
    "from_file",
    "load",
]
