"""The ids that every tokenizer, data set, model and search of the package agrees on.

Shapes: B batch, T length.
"""

from typing import NamedTuple

PAD_ID = 0
UNKNOWN_ID = 1
START_ID = 2  # BERT calls it the class token
END_ID = 3  # and this the separator


class SpecialIds(NamedTuple):
    """The special ids of a model's vocabulary; the defaults are those of our tokenizers.

    Vocabularies of other libraries may have other special ids, or none.
    """

    pad: int = PAD_ID
    """Padding: 0 with our tokenizers, in whose vocabularies unknown and start are no text either;
    -1 where every id is a token."""
    end: int | None = END_ID
    """The token that ends an output; None if nothing but its limit does."""

    @property
    def num_forbidden(self):
        """How many ids, from 0 on, no search may choose, because they are no text."""
        if self.pad < 0:
            return 0
        return END_ID if self.end == END_ID else END_ID + 1


OUR_SPECIAL_IDS = SpecialIds()


def shift_right(labels, numpy):
    """Returns the decoder's input in training: the start token, then all labels but the last.

    Args:
        labels: `(B, T)`, integers: tokens and the end token, padded with 0 at the end.
        numpy: module whose `concatenate` and `where` accept the labels: `numpy`, `keras.ops` or
            `tensorflow.experimental.numpy`.
    Returns:
        `(B, T)`, with padding where the labels are padding.
    """
    padding = labels * 0 + PAD_ID
    start = padding[:, :1] + START_ID
    shifted = numpy.concatenate([start, labels[:, :-1]], axis=1)
    return numpy.where(labels == PAD_ID, padding, shifted)
