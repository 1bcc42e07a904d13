"""Text to ids and back, inside the graph: SentencePiece and WordPiece behind one interface."""

from keras_transformer.tokenizers.files import from_file, load
from keras_transformer.tokenizers.sentence_piece_tokenizer import SentencePieceTokenizer
from keras_transformer.tokenizers.word_piece_tokenizer import WordPieceTokenizer

__all__ = ["SentencePieceTokenizer", "WordPieceTokenizer", "from_file", "load"]
