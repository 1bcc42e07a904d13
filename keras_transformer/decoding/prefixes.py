"""The beginnings that outputs are given: tokens, and the bytes of a word that goes on.

Shapes: B batch (inputs), N hypotheses of each input, L positions, P tokens, R bytes, V vocabulary.
"""

import bisect
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.decoding.processors import has_token
from keras_transformer.special_ids import PAD_ID
from keras_transformer.types import Tensor

MAX_BYTES = 32
"""R: the last bytes of a prefix, which may be written in other tokens than those of the tokenizer,
because its last word may go on. What stands before them is given as tokens."""
SPACE = b" "


class Prefix:
    """Lets each output begin with bytes of its own, in whatever tokens they are written.

    In each step it allows the tokens that go on with the bytes that are left, and those that go on
    beyond them, so that an output may end the last word as it likes: "Hu" begins "Hund" too.

    Args:
        ranks: `(V,)` int32, the place of each token when tokens are sorted by their bytes; below 0
            for tokens that never stand in a text.
        sizes: `(V,)` int32, the number of bytes of each token, 0 for those.
        low, high, inner, size: see `Prefixes.arrays`, where R is the number of bytes.
    """

    def __init__(
        self, ranks: Tensor, sizes: Tensor, low: Tensor, high: Tensor, inner: Tensor, size: Tensor
    ) -> None:
        self.ranks = ranks
        self.sizes = sizes
        self.memory = low, high, inner, size

    def __call__(
        self,
        log_probs: Tensor,
        ids: Tensor,
        lengths: Tensor,
        low: Tensor,
        high: Tensor,
        inner: Tensor,
        size: Tensor,
    ) -> Tensor:
        num_written = ops.sum(ops.take(self.sizes, ids, axis=0), axis=-1)  # (B, N)
        is_open = num_written < size
        place = ops.minimum(num_written, ops.shape(low)[1] - 1)
        low, high = (ops.take_along_axis(x, place, axis=1)[..., None] for x in (low, high))
        is_allowed = (self.ranks >= low) & (self.ranks < high)  # (B, N, V)
        inner = ops.take_along_axis(inner, place[..., None], axis=1)
        is_allowed = is_allowed | has_token(inner, inner >= 0, ops.shape(log_probs)[-1])
        return ops.where(is_open[..., None] & ~is_allowed, IMPOSSIBLE, log_probs)


class PrefixVocabulary:
    """The tokens of a vocabulary, sorted by the bytes that they stand for.

    Args:
        surfaces: list of bytes, what each token adds to a text, with the space before a word; b""
            for a token that never stands in a text.
        vocab_size: V, at least their number.
    """

    NUM_ARRAYS = 5
    BEAM_SIZE = 1

    def __init__(self, surfaces: Sequence[bytes], vocab_size: int) -> None:
        order = sorted((surface, i) for i, surface in enumerate(surfaces) if surface)
        self.surfaces = surfaces
        self._sorted = [surface for surface, _ in order]
        self._ids = dict(reversed(order))  # of equal ones, the first
        self.ranks = np.full(vocab_size, -1, "int32")
        self.ranks[[i for _, i in order]] = np.arange(len(order))
        self.sizes = np.zeros(vocab_size, "int32")
        self.sizes[: len(surfaces)] = list(map(len, surfaces))

    def split(self, ids, ends_word):
        """Returns the tokens that a prefix gives as they are, and the bytes that come after them.

        Args:
            ids: list of int, the tokens of the prefix.
            ends_word: whether its last word is complete, so that a space follows.
        """
        if ends_word:
            return ids, SPACE
        surfaces = [self.surfaces[i] for i in ids]
        starts = [k for k, surface in enumerate(surfaces) if surface.startswith(SPACE)]
        start = starts[-1] if starts else 0
        while sum(map(len, surfaces[start:])) > MAX_BYTES:
            start += 1
        return ids[:start], b"".join(surfaces[start:])

    def table(self, rest):
        """Returns what may be written at each place of the bytes that are left.

        Returns:
            `(low, high, inner)`: `(R,)`, `(R,)` and `(R, R - 1)` int32: at each place, the ranks
            from `low` to below `high` are those of the tokens that begin with all bytes from there
            on. `inner` are the ids of tokens that are some of these bytes, then -1.
        """
        low, high = np.zeros((2, MAX_BYTES), "int32")
        inner = np.full((MAX_BYTES, MAX_BYTES - 1), -1, "int32")
        leads_to_end = [False] * len(rest) + [True]
        for place in reversed(range(len(rest))):
            left = rest[place:]
            low[place] = bisect.bisect_left(self._sorted, left)
            high[place] = bisect.bisect_left(self._sorted, left[:-1] + bytes([left[-1] + 1]))
            parts = (
                self._ids[left[:size]]
                for size in range(1, len(left))
                if left[:size] in self._ids and leads_to_end[place + size]
            )
            found = list(parts)
            inner[place, : len(found)] = found
            leads_to_end[place] = bool(found) or low[place] < high[place]
        return low, high, inner

    def beginnings(self) -> dict[bytes, tuple[int, int, int]]:
        """Returns, of all bytes with which some token begins, at most R, what `table` says of them.

        Returns:
            Dict to `(low, high, id)`: the ranks of these tokens, and the token that is the bytes
            themselves or -1.
        """
        found: dict[bytes, tuple[int, int, int]] = {}
        for rank, surface in enumerate(self._sorted):
            for size in range(1, min(len(surface), MAX_BYTES) + 1):
                begin = surface[:size]
                low = found[begin][0] if begin in found else rank
                found[begin] = low, rank + 1, self._ids.get(begin, -1)
        return found

    def options(self, tokens: Tensor, *tables: Tensor) -> tuple[dict[str, Tensor], Prefix]:
        """Returns how a search is begun and the processor of a batch; takes `Prefixes.arrays`."""
        ranks, sizes = map(ops.convert_to_tensor, (self.ranks, self.sizes))
        return {"prefixes": tokens}, Prefix(ranks, sizes, *tables)


class Prefixes:
    """The prefixes of a list of inputs.

    Args:
        vocabulary: `PrefixVocabulary`.
        rows: for each input the pair of arguments of `PrefixVocabulary.split`; no ids: no prefix.
    """

    def __init__(
        self, vocabulary: PrefixVocabulary, rows: Sequence[tuple[list[int], bool]]
    ) -> None:
        self.vocabulary = vocabulary
        self._rows = [vocabulary.split(*row) if row[0] else ([], b"") for row in rows]

    def arrays(self, indices: Sequence[int], num_rows: int) -> tuple[np.ndarray, ...]:
        """Returns the prefixes of a batch as NumPy arrays.

        Args:
            indices: numbers of its inputs.
            num_rows: B, at least their number; the others have no prefix.
        Returns:
            `(tokens, low, high, inner, size)`, int32. `tokens` `(B, P)`, padded; P is a multiple of
            16, as JAX compiles for each shape. The next three: see `PrefixVocabulary.table`, with B
            in front. `size` `(B, 1)`: the number of bytes after the tokens.
        """
        rests = [self._rows[i][1] for i in indices] + [b""] * (num_rows - len(indices))
        tables = map(self.vocabulary.table, rests)
        size = np.array([[len(rest)] for rest in rests], "int32")
        return self.tokens(indices, num_rows), *map(np.stack, zip(*tables, strict=True)), size

    def tokens(self, indices: Sequence[int], num_rows: int) -> np.ndarray:
        """Returns the first of the `arrays`."""
        rows = [self._rows[i][0] for i in indices]
        longest = max(map(len, rows))
        tokens = np.full((num_rows, -(-longest // 16) * 16), PAD_ID, "int32")
        for row, ids in zip(tokens, rows, strict=False):
            row[: len(ids)] = ids
        return tokens
