"""Rows of ids of different lengths in one flat array, so that millions of them fit in memory."""

import array
import hashlib
import itertools

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.special_ids import END_ID, PAD_ID

CHUNK = 4096  # sentences per call of the tokenizer


def check_tokenizer(tokenizer):
    """Raises `ValueError` for a tokenizer of another library, such as that of an imported BERT."""
    if not hasattr(tokenizer, "pieces"):
        raise InputError(
            f"Expected a tokenizer of this package. Received: {tokenizer=!r:.80}. That of an "
            "imported BERT or GPT-2 returns ids itself: tokenizer.encode_batch(texts)."
        )


class RaggedIds:
    """Encoded sentences, each followed by the end token.

    Args:
        ids: int32, all rows in sequence.
        lengths: int, number of ids of each row.
    """

    def __init__(self, ids, lengths):
        self.ids = ids
        self.lengths = np.asarray(lengths, "int32")
        self.starts = np.cumsum(lengths, dtype="int64") - lengths

    @classmethod
    def encode(cls, tokenizer, sentences):
        """Returns the rows of a list of sentences."""
        check_tokenizer(tokenizer)
        ids, lengths = [np.zeros(0, "int32")], [np.zeros(0, "int32")]  # there may be no sentence
        for start in range(0, len(sentences), CHUNK):
            rows = tokenizer.encode_on_host(sentences[start : start + CHUNK])
            for row in rows:
                row.append(END_ID)
            lengths.append(np.fromiter(map(len, rows), "int32", len(rows)))
            chained = itertools.chain.from_iterable(rows)
            ids.append(np.fromiter(chained, "int32", int(lengths[-1].sum())))
        return cls(np.concatenate(ids), np.concatenate(lengths))

    @classmethod
    def encode_sampled(cls, tokenizer, sentences, sampling, seed, plain, max_length):
        """Returns rows of random tokenizations.

        If a random tokenization has more than `max_length` ids, the row of `plain` is used.
        """
        ids, lengths = array.array("i"), []  # lists of Python's numbers are large
        for i, row in enumerate(tokenizer.encode_sampled(sentences, sampling, seed)):
            row = [*row, END_ID] if len(row) < max_length else plain.row(i).tolist()
            ids.extend(row)
            lengths.append(len(row))
        return cls(np.array(ids, "int32"), lengths)

    def checksum(self):
        """Returns the SHA-256 of all rows, in hexadecimal digits."""
        return hashlib.sha256(self.ids.tobytes() + self.lengths.tobytes()).hexdigest()

    def select(self, chosen):
        """Returns the rows where the bool array `chosen` is True."""
        return RaggedIds(self.ids[np.repeat(chosen, self.lengths)], self.lengths[chosen])

    def take(self, indices):
        """Returns the rows `indices`, which may have a row several times."""
        return RaggedIds(self.ids[self.places(indices)], self.lengths[indices])

    def row(self, index):
        start = self.starts[index]
        return self.ids[start : start + self.lengths[index]]

    def texts(self):
        """Yields each row without its end token."""
        return (self.row(i)[:-1] for i in range(len(self.lengths)))

    def places(self, indices):
        """Returns the positions in `ids` of the rows `indices`, one row after the other."""
        lengths = self.lengths[indices]
        before = np.cumsum(lengths, dtype="int64") - lengths
        return np.repeat(self.starts[indices] - before, lengths) + np.arange(lengths.sum())

    def padded(self, indices, num_rows, width):
        """Returns the rows `indices` as int32 `(num_rows, width)`, padded right and below."""
        columns = np.arange(width)
        real = columns < self.lengths[indices, None]
        # Positions after a row's end are also read, and then masked. They are clipped, because
        # those of the last row would be outside the array.
        places = np.minimum(self.starts[indices, None] + columns, len(self.ids) - 1)
        result = np.full((num_rows, width), PAD_ID, "int32")
        result[: len(indices)] = np.where(real, self.ids[places], PAD_ID)
        return result


def left_out(source, target, max_length):
    """Returns `(is_blank, is_long)`: which pairs of two `RaggedIds` cannot be trained on.

    Blank are those with a side without tokens, as a text of word-boundary signs; long are others
    with a side of more than `max_length`, including the end token.
    """
    is_blank = np.minimum(source.lengths, target.lengths) == 1
    return is_blank, ~is_blank & (np.maximum(source.lengths, target.lengths) > max_length)
