"""What every search returns.

Shapes: B batch (sentences), N hypotheses a sentence, L maximum output length.
"""

from typing import Any, NamedTuple

IMPOSSIBLE = -1e9
"""Stands for log(0): the score of what may not be chosen. Finite, so that no difference is NaN."""


class SearchResult(NamedTuple):
    """The hypotheses of each sentence, the best first; those that ended before those that did not.

    Where the vocabulary has fewer hypotheses than were asked for, the rest have length 0 and the
    score `IMPOSSIBLE`.
    """

    ids: Any
    """`(B, N, L)` int32: the pieces and the end token, `PAD_ID` after it."""

    scores: Any
    """`(B, N)` float32: summed log-probability, the end token counted, over the length penalty."""

    lengths: Any
    """`(B, N)` int32: number of pieces, the end token counted."""

    finished: Any
    """`(B, N)` bool: ended by the end token rather than by the limit."""
