"""WordPiece (Schuster and Nakajima, 2012; as in BERT, https://arxiv.org/abs/1810.04805)."""

import functools
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

from keras_transformer.errors import InputError
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers.tokenizer import Tokenizer, valid_texts
from keras_transformer.types import Self, Texts

SPECIAL_TOKENS = {
    PAD_ID: ("[PAD]",),
    UNKNOWN_ID: ("[UNK]",),
    START_ID: ("[START]", "[CLS]"),  # the first name is ours, the second BERT's
    END_ID: ("[END]", "[SEP]"),
}
REMOVED = r"[\x{FFFD}\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{Cf}\p{Co}]"
SPACES = r"[\t\n\r\p{Z}]"
IDEOGRAPHS = (  # the blocks in BERT's own code, one of which ends too early there
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
"""Characters as BERT's normalizer and pre-tokenizer class them, for RE2."""
MAX_CHARACTERS = 100
"""Characters of the longest word that is split; a longer one is unknown, as in BERT."""
SUFFIX_INDICATOR = "##"
SLACK = 0.05  # share of vocab_size by which the vocabulary may be smaller
CHUNK = 4096  # sentences per call of the word splitter


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

    def __init__(self, vocabulary: bytes) -> None:
        super().__init__(name="word_piece_tokenizer")
        pieces = _with_our_special_ids(vocabulary)
        self._pieces = tuple(pieces)
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(pieces), tf.range(len(pieces), dtype=tf.int64)
            ),
            default_value=UNKNOWN_ID,
        )
        self._ops = tensorflow_text.WordpieceTokenizer(
            table,
            suffix_indicator=SUFFIX_INDICATOR,
            max_bytes_per_word=4 * MAX_CHARACTERS,
            unknown_token=pieces[UNKNOWN_ID],
        )

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
        words = cls._words(valid_texts(list(sentences)))
        texts = tf.strings.reduce_join(words, axis=1, separator=" ").numpy()
        texts = [text for text in texts if text]
        if not texts:
            raise InputError(
                "Expected sentences to learn a vocabulary from. Received: no text at all."
            )
        pieces = _learn(texts, vocab_size)
        if len(pieces) < (1 - SLACK) * vocab_size:
            pieces = _learn(texts, vocab_size, lowest_only=True)
        if len(pieces) < (1 - SLACK) * vocab_size:
            raise InputError(
                f"Vocabulary too large for the corpus: expected at most {len(pieces)} tokens. "
                f"Received: vocab_size={vocab_size}. Lower it, or train on more text."
            )
        # The learner may return too many tokens. Keep single characters, to spell any word.
        num_special = len(SPECIAL_TOKENS)
        spelling = [piece for piece in pieces if _is_character(piece)]
        words = [piece for piece in pieces[num_special:] if not _is_character(piece)]
        num_needed = num_special + len(spelling)
        if num_needed > vocab_size:
            raise InputError(
                f"Vocabulary too small for the corpus: expected at least {num_needed} tokens, two "
                f"for each character. Received: vocab_size={vocab_size}. Raise it."
            )
        pieces = pieces[:num_special] + spelling + words[: vocab_size - num_needed]
        return cls("\n".join(pieces).encode())

    @property
    def pieces(self) -> list[str]:
        return list(self._pieces)

    @property
    def serialized(self) -> bytes:
        return "".join(f"{piece}\n" for piece in self._pieces).encode()

    def _tokenize(self, texts):
        words = self._words(texts)
        is_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > MAX_CHARACTERS
        unknown = self._pieces[UNKNOWN_ID]
        words = words.with_flat_values(tf.where(is_long, unknown, words.flat_values))
        ids = self._ops.tokenize(words)  # (B, words, pieces)
        return tf.cast(ids.merge_dims(1, 2), tf.int32)

    @classmethod
    def _words(cls, texts):
        """Returns the words of strings `(B,)`, ragged `(B, None)`."""
        replace = tf.strings.regex_replace
        texts = replace(replace(texts, REMOVED, ""), SPACES, " ")
        texts = cls._normalized(replace(texts, f"({IDEOGRAPHS})", r" \1 "))
        words = tf.strings.split(replace(texts, f"({PUNCTUATION})", r" \1 "), " ")
        return tf.ragged.boolean_mask(words, words != "")

    @staticmethod
    def _normalized(texts):
        return texts

    @functools.cached_property
    def surfaces(self) -> list[bytes]:
        written = (f" {piece}".replace(f" {SUFFIX_INDICATOR}", "") for piece in self._pieces)
        return [b"" if i <= END_ID else text.encode() for i, text in enumerate(written)]

    def _detokenize(self, ids):
        pieces = tf.ragged.map_flat_values(tf.gather, tf.constant(self._pieces), ids)
        text = tf.strings.reduce_join(pieces, axis=1, separator=" ")
        text = tf.strings.regex_replace(text, f"(^| ){SUFFIX_INDICATOR}", "")
        text = tf.strings.regex_replace(text, r" ([.,!?;:%)\]}])", r"\1")
        text = tf.strings.regex_replace(text, r"([(\[{]) ", r"\1")
        return tf.strings.regex_replace(text, r" (['’-]) ", r"\1")

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

    @staticmethod
    def _normalized(texts):
        texts = tensorflow_text.normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
        texts = tf.strings.regex_replace(texts, "Σ", "σ")  # never a final sigma
        return tf.strings.lower(texts, encoding="utf-8")


def _learn(texts, vocab_size, lowest_only=False):
    """Returns the tokens that TensorFlow's learner finds, the special ones first.

    Args:
        texts: list of bytes, with a space between two words.
        lowest_only: whether to take every token that occurs, without searching for the minimum
            count that leaves about `vocab_size` tokens.
    """

    def chunks():
        for start in range(0, len(texts), CHUNK):
            yield np.array(texts[start : start + CHUNK], object)

    return bert_vocab_from_dataset.bert_vocab_from_dataset(
        tf.data.Dataset.from_generator(chunks, output_signature=tf.TensorSpec([None], tf.string)),
        vocab_size,
        [names[0] for _, names in sorted(SPECIAL_TOKENS.items())],
        learn_params={
            "lower_thresh": 1,
            "slack_ratio": SLACK,
            **({"upper_thresh": 1} if lowest_only else {}),
        },
    )


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
