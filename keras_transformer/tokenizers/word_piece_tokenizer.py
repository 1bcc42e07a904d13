"""WordPiece (Schuster and Nakajima, 2012; as in BERT, https://arxiv.org/abs/1810.04805)."""

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers.tokenizer import Tokenizer

SPECIAL_PIECES = {
    PAD_ID: ("[PAD]",),
    UNKNOWN_ID: ("[UNK]",),
    START_ID: ("[START]", "[CLS]"),  # the first name is ours, the second BERT's
    END_ID: ("[END]", "[SEP]"),
}
SUFFIX_INDICATOR = "##"
SPLITTING = {"lower_case": False, "normalization_form": "NFC"}  # of text into words
SLACK = 0.05  # part of vocab_size that the learner may stay below it
CHUNK = 4096  # sentences a call of the word splitter


class WordPieceTokenizer(Tokenizer):
    """Splits text into words at white space and punctuation, and words into WordPieces.

    Case is kept: to use the vocabulary of an uncased model, lowercase the text before.

    The split forgets where white space was, so `decode` puts it back by rule: none before
    `. , ! ? ; : % ) ] }`, none behind `( [ {`, none around `'`, `’` and `-`. Text that was
    tokenized before (`a bike .`) comes back joined (`a bike.`): use SentencePiece for that.

    Args:
        vocabulary: bytes of a vocab.txt, one piece a line, UTF-8, with any layout of special
            pieces (`[UNK]` is needed; `[PAD]`, `[START]` or `[CLS]`, `[END]` or `[SEP]` are added
            if missing). Pieces are moved so that ids 0 to 3 are padding, unknown, start and end.
    Raises:
        ValueError: `vocabulary` is not UTF-8 or has no `[UNK]`.
    """

    SUFFIX = ".vocab.txt"

    def __init__(self, vocabulary):
        super().__init__(name="word_piece_tokenizer")
        pieces = _with_our_special_ids(vocabulary)
        self._vocabulary = "\n".join(pieces)
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(pieces), tf.range(len(pieces), dtype=tf.int64)
            ),
            default_value=UNKNOWN_ID,
        )
        self._ops = tensorflow_text.BertTokenizer(
            table,
            suffix_indicator=SUFFIX_INDICATOR,
            unknown_token=pieces[UNKNOWN_ID],
            split_unknown_characters=True,
            **SPLITTING,
        )

    @classmethod
    def train(cls, sentences, vocab_size):
        """Learns a vocabulary of `vocab_size` pieces or up to 5 % less, special ones counted.

        Args:
            sentences: iterable of strings; blank ones teach nothing.
            vocab_size: int.
        Raises:
            ValueError: no text, or text that has too few words or too many different characters
                for `vocab_size`.
        """
        sentences = [sentence for sentence in sentences if sentence.strip()]
        if not sentences:
            raise ValueError(
                "Expected sentences to learn a vocabulary from. Received: no text at all."
            )
        pieces = _learn(sentences, vocab_size)
        if len(pieces) < (1 - SLACK) * vocab_size:
            pieces = _learn(sentences, vocab_size, lowest_only=True)
        if len(pieces) < (1 - SLACK) * vocab_size:
            raise ValueError(
                f"Vocabulary too large for the corpus: expected at most {len(pieces)} pieces. "
                f"Received: vocab_size={vocab_size}. Lower it, or train on more text."
            )
        # The learner may overshoot. Single characters must stay, or words could not be spelt.
        num_special = len(SPECIAL_PIECES)
        spelling = [piece for piece in pieces if _is_character(piece)]
        words = [piece for piece in pieces[num_special:] if not _is_character(piece)]
        num_needed = num_special + len(spelling)
        if num_needed > vocab_size:
            raise ValueError(
                f"Vocabulary too small for the corpus: expected at least {num_needed} pieces, two "
                f"for each character. Received: vocab_size={vocab_size}. Raise it."
            )
        pieces = pieces[:num_special] + spelling + words[: vocab_size - num_needed]
        return cls("\n".join(pieces).encode())

    @property
    def pieces(self):
        return self._vocabulary.split("\n")

    @property
    def serialized(self):
        return f"{self._vocabulary}\n".encode()

    def _tokenize(self, texts):
        ids = self._ops.tokenize(texts)  # (B, words, pieces)
        return tf.cast(ids.merge_dims(1, 2), tf.int32)

    def _detokenize(self, ids):
        pieces = tf.ragged.map_flat_values(tf.gather, tf.constant(self.pieces), ids)
        text = tf.strings.reduce_join(pieces, axis=1, separator=" ")
        text = tf.strings.regex_replace(text, f"(^| ){SUFFIX_INDICATOR}", "")
        text = tf.strings.regex_replace(text, r" ([.,!?;:%)\]}])", r"\1")
        text = tf.strings.regex_replace(text, r"([(\[{]) ", r"\1")
        return tf.strings.regex_replace(text, r" (['’-]) ", r"\1")

    def encode_sampled(self, sentences, sampling, seed):
        """Raises ValueError: WordPiece splits a word in one way."""
        raise ValueError(
            f"Expected no sampling with WordPiece. Received: sampling={sampling}. "
            "Use a SentencePiece tokenizer, or sampling=0."
        )


def _learn(sentences, vocab_size, lowest_only=False):
    """Returns the learner's pieces, special ones first.

    Args:
        lowest_only: take every piece that occurs, instead of looking for the least count of a
            piece that gives about `vocab_size`.
    """

    def chunks():
        for start in range(0, len(sentences), CHUNK):
            yield np.array([text.encode() for text in sentences[start : start + CHUNK]], object)

    return bert_vocab_from_dataset.bert_vocab_from_dataset(
        tf.data.Dataset.from_generator(chunks, output_signature=tf.TensorSpec([None], tf.string)),
        vocab_size,
        [names[0] for _, names in sorted(SPECIAL_PIECES.items())],
        bert_tokenizer_params=SPLITTING,
        learn_params={
            "lower_thresh": 1,
            "slack_ratio": SLACK,
            **({"upper_thresh": 1} if lowest_only else {}),
        },
    )


def _is_character(piece):
    return len(piece.removeprefix(SUFFIX_INDICATOR)) == 1


def _with_our_special_ids(vocabulary):
    """Returns the pieces of a vocab.txt, ids 0 to 3 being padding, unknown, start, end."""
    try:
        lines = vocabulary.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            "Expected a WordPiece vocabulary in UTF-8, one piece a line. "
            f"Received: {error.reason} at byte {error.start}."
        ) from None
    pieces = [line for line in dict.fromkeys(line.removesuffix("\r") for line in lines) if line]
    if SPECIAL_PIECES[UNKNOWN_ID][0] not in pieces:
        raise ValueError(
            "Expected a WordPiece vocabulary, one piece a line, with [UNK]. "
            f"Received: {len(pieces)} lines without it."
        )
    special = [
        next((name for name in names if name in pieces), names[0])
        for _, names in sorted(SPECIAL_PIECES.items())
    ]
    return special + [piece for piece in pieces if piece not in special]
