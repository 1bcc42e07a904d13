"""WordPiece (Schuster and Nakajima, 2012; as in BERT, https://arxiv.org/abs/1810.04805)."""

import functools
import unicodedata
from collections.abc import Iterable, Iterator

import regex

from keras_transformer.errors import InputError
from keras_transformer.files.text import without_surrogates
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers.patterns import IDEOGRAPHS, MARKS, PUNCTUATION, REMOVED, SPACES
from keras_transformer.tokenizers.tokenizer import Tokenizer
from keras_transformer.types import Self, Texts

SPECIAL_TOKENS = {
    PAD_ID: ("[PAD]",),
    UNKNOWN_ID: ("[UNK]",),
    START_ID: ("[START]", "[CLS]"),  # the first name is ours, the second BERT's
    END_ID: ("[END]", "[SEP]"),
}
MAX_CHARACTERS = 100
"""Characters of the longest word that is split; a longer one is unknown, as in BERT."""
SPECIAL_NAMES = [names[0] for _, names in sorted(SPECIAL_TOKENS.items())]
SUFFIX_INDICATOR = "##"
JOINS = (
    (f"(^| ){SUFFIX_INDICATOR}", ""),
    (r" ([.,!?;:%)\]}])", r"\1"),
    (r"([(\[{]) ", r"\1"),
    (r" (['’-]) ", r"\1"),
)
"""Patterns and what replaces them where tokens become a text."""
SLACK = 0.05  # share of vocab_size by which the vocabulary may be smaller
NUM_CACHED_WORDS = 2**17


class WordPieceTokenizer(Tokenizer):
    """Splits text into words at white space and punctuation, and words into WordPieces.

    The ids are those of BERT's tokenizer in the library `tokenizers`: control and format characters
    are removed, ideographs are words, and a word of which a part is not in the vocabulary, or with
    more than 100 characters, is one unknown token. Two differences remain. A special token that
    stands in the text, such as `[MASK]`, is split like other text. And about 700 of the
    1,112,064 characters, all of which Unicode has added or changed since 2016, are classed
    otherwise, as the libraries have its tables of different years.

    Case is kept: for the vocabulary of an uncased model, use `UncasedWordPieceTokenizer`.

    The ids do not record white space, so `decode` restores it by rule: none before
    `. , ! ? ; : % ) ] }`, none after `( [ {`, none around `'`, `’` and `-`. Tokenized text
    (`a bike .`) is joined (`a bike.`): use SentencePiece for it.

    Args:
        vocabulary: bytes of a vocab.txt, one token per line, UTF-8, with any layout of special
            tokens (`[UNK]` is required; `[PAD]`, `[START]` or `[CLS]`, `[END]` or `[SEP]` are added
            if missing). Tokens are moved so that ids 0 to 3 are padding, unknown, start and end. An
            imported BERT expects the ids of its own files: use the tokenizer imported with it.
    Raises:
        ValueError: `vocabulary` is not UTF-8 or has no `[UNK]`.
    """

    SUFFIX = ".vocab.txt"
    _uncased = False

    def __init__(self, vocabulary: bytes) -> None:
        pieces = _with_our_special_ids(vocabulary)
        self._pieces = tuple(pieces)
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._longest = max(map(len, pieces))
        self._ids_of_word = functools.lru_cache(NUM_CACHED_WORDS)(self._split)

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int) -> Self:
        """Learns a vocabulary of `vocab_size` tokens, or up to 5 % fewer, with the special ones.

        Args:
            sentences: iterable of strings; blank ones are skipped.
            vocab_size: int.
        Raises:
            ValueError: no text, or text that has too few words or too many different characters
                for `vocab_size`.
        """
        from keras_transformer.tokenizers.graph.word_piece_learner import learn

        words = (cls._words(without_surrogates(each)) for each in sentences)
        texts = [" ".join(each).encode() for each in words if each]
        if not texts:
            raise InputError(
                "Expected sentences to learn a vocabulary from. Received: no text at all."
            )
        pieces = learn(texts, vocab_size, SPECIAL_NAMES, SLACK)
        if len(pieces) < (1 - SLACK) * vocab_size:
            pieces = learn(texts, vocab_size, SPECIAL_NAMES, SLACK, lowest_only=True)
        if len(pieces) < (1 - SLACK) * vocab_size:
            raise InputError(
                f"Vocabulary too large for the corpus: expected at most {len(pieces)} tokens. "
                f"Received: vocab_size={vocab_size}. Lower it, or train on more text."
            )
        # The learner may return too many tokens. Keep single characters, to spell any word.
        num_special = len(SPECIAL_TOKENS)
        spelling = [piece for piece in pieces if _is_character(piece)]
        longer = [piece for piece in pieces[num_special:] if not _is_character(piece)]
        num_needed = num_special + len(spelling)
        if num_needed > vocab_size:
            raise InputError(
                f"Vocabulary too small for the corpus: expected at least {num_needed} tokens, two "
                f"for each character. Received: vocab_size={vocab_size}. Raise it."
            )
        pieces = pieces[:num_special] + spelling + longer[: vocab_size - num_needed]
        return cls("\n".join(pieces).encode())

    @property
    def pieces(self) -> list[str]:
        return list(self._pieces)

    @property
    def serialized(self) -> bytes:
        return "".join(f"{piece}\n" for piece in self._pieces).encode()

    def _tokenize_on_host(self, texts):
        return [
            [i for word in self._words(text) for i in self._ids_of_word(word)] for text in texts
        ]

    @classmethod
    def _words(cls, text):
        """Returns the words of a text: a list of str."""
        text = regex.sub(SPACES, " ", regex.sub(REMOVED, "", text))
        text = cls._normalized(regex.sub(f"({IDEOGRAPHS})", r" \1 ", text))
        return regex.sub(f"({PUNCTUATION})", r" \1 ", text).split()

    @staticmethod
    def _normalized(text):
        return text

    def _split(self, word):
        """Returns the ids of the longest tokens that make up a word, or the unknown one alone."""
        if len(word) > MAX_CHARACTERS:
            return (UNKNOWN_ID,)
        ids, start, before = [], 0, ""
        while start < len(word):
            ends = range(min(len(word), start + self._longest), start, -1)
            end = next((end for end in ends if before + word[start:end] in self._ids), None)
            if end is None:
                return (UNKNOWN_ID,)
            ids.append(self._ids[before + word[start:end]])
            start, before = end, SUFFIX_INDICATOR
        return tuple(ids)

    @functools.cached_property
    def surfaces(self) -> list[bytes]:
        written = (f" {piece}".replace(f" {SUFFIX_INDICATOR}", "") for piece in self._pieces)
        return [b"" if i <= END_ID else text.encode() for i, text in enumerate(written)]

    def _detokenize_on_host(self, rows):
        return [self._joined(" ".join(map(self._pieces.__getitem__, row))) for row in rows]

    @staticmethod
    def _joined(text):
        for pattern, replacement in JOINS:
            text = regex.sub(pattern, replacement, text)
        return text

    def _in_graph(self):
        from keras_transformer.tokenizers.graph.word_piece import WordPieceGraph

        return WordPieceGraph.of(
            self, self._pieces, MAX_CHARACTERS, SUFFIX_INDICATOR, JOINS, self._uncased
        )

    def encode_sampled(self, sentences: Texts, sampling: float, seed: int) -> Iterator[list[int]]:
        """Raises ValueError, because WordPiece splits a word in only one way."""
        raise InputError(
            f"Expected no sampling with WordPiece. Received: sampling={sampling}. "
            "Use a SentencePiece tokenizer, or sampling=0."
        )


class UncasedWordPieceTokenizer(WordPieceTokenizer):
    """A `WordPieceTokenizer` that removes accents and case before it splits a text.

    As in BERT: the text is decomposed (NFD), non-spacing marks are removed, and the rest is
    lowercased. So `decode` returns lowercase text without accents.

    Args, Raises: see `WordPieceTokenizer`.
    """

    SUFFIX = ".uncased.vocab.txt"
    _uncased = True

    @staticmethod
    def _normalized(text):
        text = regex.sub(MARKS, "", unicodedata.normalize("NFD", text))
        return text.replace("Σ", "σ").lower()  # never a final sigma


def _is_character(piece):
    return len(piece.removeprefix(SUFFIX_INDICATOR)) == 1


def _with_our_special_ids(vocabulary):
    """Returns the tokens of a vocab.txt, with padding, unknown, start and end at ids 0 to 3."""
    try:
        lines = vocabulary.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            "Expected a WordPiece vocabulary in UTF-8, one token per line. "
            f"Received: {error.reason} at byte {error.start}."
        ) from None
    pieces = [line for line in dict.fromkeys(line.removesuffix("\r") for line in lines) if line]
    if SPECIAL_TOKENS[UNKNOWN_ID][0] not in pieces:
        raise InputError(
            "Expected a WordPiece vocabulary, one token per line, with [UNK]. "
            f"Received: {len(pieces)} lines without it."
        )
    special = [
        next((name for name in names if name in pieces), names[0])
        for _, names in sorted(SPECIAL_TOKENS.items())
    ]
    return special + [piece for piece in pieces if piece not in special]
