"""SentencePiece (Kudo and Richardson, 2018, https://arxiv.org/abs/1808.06226)."""

import functools
from collections.abc import Iterable, Iterator

from keras_transformer.special_ids import UNKNOWN_ID
from keras_transformer.tokenizers.sentence_piece_model import (
    SPACE,
    processor_of,
    trained_model,
    with_our_special_ids,
    with_symbols,
)
from keras_transformer.tokenizers.subword_sampling import SubwordSampler
from keras_transformer.tokenizers.tokenizer import Tokenizer
from keras_transformer.types import Self, Texts


class SentencePieceTokenizer(Tokenizer):
    """Splits text into the tokens of a SentencePiece model, BPE or unigram.

    A model trained here normalizes text, by default with `nmt_nfkc`: compatibility characters are
    replaced by their usual forms, and white space becomes single spaces and is removed at the ends.
    So `decode(encode(text))` is the normalized text.

    Args:
        model: bytes of a SentencePiece model, with any layout of special ids. Tokens are moved
            so that ids 0 to 3 are padding, unknown, start and end; missing ones are added.
    Raises:
        ValueError: `model` is not a SentencePiece model.

    Example:
        tokenizer = SentencePieceTokenizer.train(["A dog runs.", "Two dogs run."], vocab_size=30)
        rows = tokenizer.encode_on_host(["A dog runs."])
        tokenizer.decode_on_host(rows)  # ["A dog runs."]
    """

    SUFFIX = ".model"

    def __init__(self, model: bytes) -> None:
        self._model = with_our_special_ids(model)
        self._processor = processor_of(self._model)

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocab_size: int,
        model_type: str = "bpe",
        seed: int = 1,
        user_symbols: Texts = (),
        normalization: str = "nmt_nfkc",
        byte_fallback: bool = False,
    ) -> Self:
        """Learns a vocabulary of exactly `vocab_size` tokens, including the four special ones.

        Args:
            sentences: iterable of strings; blank ones are skipped.
            vocab_size: int.
            model_type: "bpe" or "unigram".
            seed: int; draws the sample of a corpus of more than two million sentences.
            user_symbols: list of strings that always stay one token, such as the tag ">>de<<" of
                a target language. The text need not contain them.
            normalization: "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf" or "identity", see
                https://github.com/google/sentencepiece/blob/master/doc/normalization.md, or the
                path of a TSV file of rules. The first differs from SentencePiece's in keeping the
                zero-width non-joiner; `_cf` also folds case; "identity" changes white space alone.
            byte_fallback: whether 256 of the tokens are bytes, in which a character is written that
                the text does not have: no character is unknown then.
        Raises:
            ValueError: unknown `model_type`, no text, text that has too few or too many different
                characters and words for `vocab_size`, symbols that are not distinct words, or no
                such normalization.
        """
        options = model_type, seed, user_symbols, normalization, byte_fallback
        return cls(trained_model(sentences, vocab_size, *options))

    def with_symbols(self, symbols: Texts) -> Self:
        """Returns this tokenizer with more user symbols, whose ids follow the others.

        Args:
            symbols: list of str.
        Raises:
            ValueError: a symbol is a token already, or no word.
        """
        return type(self)(with_symbols(self._model, symbols))

    @property
    def pieces(self) -> list[str]:
        return [self._processor.id_to_piece(i) for i in range(self.vocab_size)]

    @functools.cached_property
    def surfaces(self) -> list[bytes]:
        return [self._surface(i, piece) for i, piece in enumerate(self.pieces)]

    def _surface(self, i, piece):
        if self._processor.is_byte(i):  # such as <0xE2>
            return bytes([int(piece[3:-1], 16)])
        is_mark = self._processor.is_control(i) or self._processor.is_unknown(i)
        return b"" if is_mark else piece.replace(SPACE, " ").encode()

    @property
    def vocab_size(self) -> int:
        return self._processor.get_piece_size()

    @property
    def unknown_ids(self) -> list[int]:
        return [UNKNOWN_ID, *filter(self._processor.is_byte, range(self.vocab_size))]

    @property
    def sentence_piece_model(self) -> bytes:
        """The bytes of the SentencePiece model."""
        return self._model

    @property
    def serialized(self) -> bytes:
        return self._model

    def _tokenize_on_host(self, texts):
        return self._processor.encode(texts)

    def _detokenize_on_host(self, rows):
        return self._processor.decode(rows) if rows else []  # it would return ""

    def _in_graph(self):
        from keras_transformer.tokenizers.graph.sentence_piece import SentencePieceGraph

        return SentencePieceGraph.of(self, self._model)

    @functools.cached_property
    def _sampler(self):
        return SubwordSampler(self._processor)

    def encode_sampled(self, sentences: Texts, sampling: float, seed: int) -> Iterator[list[int]]:
        """Returns one random segmentation of each sentence, as the base class.

        Args:
            sentences: list of strings.
            sampling: for a BPE model, the probability with which a merge is left out in a step
                (BPE-dropout, https://arxiv.org/abs/1910.13267, algorithm 1); for a unigram model,
                the exponent of the segmentations' probabilities (https://arxiv.org/abs/1804.10959):
                near 0, all segmentations are about equally probable. User symbols stay whole.
            seed: int from 0.
        Raises:
            ValueError: `sampling` is not above 0 and at most 1, or the model, of another type, has
                only one segmentation of a text.
        """
        return self._sampler.rows(sentences, sampling, seed)
