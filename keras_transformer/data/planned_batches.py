"""Batches of pairs whose tokens are known: planned, drawn, padded, and found again by position.

Shapes: B batch (pairs), S source length, T target length.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.data.alignments import alignment_of_tokens, begins_word, word_numbers
from keras_transformer.data.batch_plan import plan_batches, plan_static_batches, static_shapes
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.errors import InputError
from keras_transformer.special_ids import PAD_ID, shift_right

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer


class Drawn(NamedTuple):
    """The pairs of an epoch, or of a section of it; one may be there several times."""

    source: RaggedIds
    target: RaggedIds
    labels: RaggedIds | None = None
    """What replaces the target as labels; None: nothing."""
    links: RaggedIds | None = None
    """Those of `PlannedBatches.links` for each pair."""


class PlannedBatches:
    """Batches of pairs whose tokens are known, different ones in each epoch.

    A batch has `B * max(S, T) <= batch_tokens`; `batch_plan` chooses its pairs. The batches of an
    epoch and their order depend only on `(seed, epoch)`. An epoch consists of sections, which are
    planned and trained one after the other, so that one alone need be in memory. A subclass defines
    the sections of an epoch, and the pairs of each.

    Args:
        batch_tokens: maximum number of positions in one side of a batch, including padding.
        max_length: maximum tokens per sentence, including the end token.
        shuffle: False gives every epoch the same order, the longest pairs first.
        seed: int.
        static_shapes: both sides of every batch are padded to one of at most so many (rows,
            length), those in `shapes`, for compilers that compile each shape. 0: there are any.
    """

    links: RaggedIds | None = None
    """Links `(L, 2)` of the words of each pair, see `read_links`; with them, batches have
    alignments."""
    failure: InputError | None = None
    """What has ended an iteration. `tf.data` raises an error of its own instead."""
    _tokenizers: "Sequence[Tokenizer]" = ()

    def __init__(
        self, batch_tokens: int, max_length: int, shuffle: bool, seed: int, static_shapes: int
    ) -> None:
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.shuffle = shuffle
        self.seed = seed
        self.static_shapes = static_shapes
        # from (epoch, section) to number of batches, as far as known
        self._num_batches: dict[tuple[int, int], int] = {}

    @property
    def rows(self) -> Sequence[RaggedIds]:
        """Source and target of all pairs, or of a random sample."""
        raise NotImplementedError

    def _sections(self, epoch):
        """Returns the numbers of the sections of an epoch, in their order."""
        return (0,)

    def _drawn(self, epoch, section):
        """Returns the `Drawn` pairs of a section."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Number of batches in epoch 0; other epochs have about as many."""
        return self._count_of_epoch(0)

    @functools.cached_property
    def shapes(self) -> list[tuple[int, int]]:
        """The possible (rows, length) of batches with `static_shapes`: they pad the text least."""
        longer = np.maximum(*(side.lengths for side in self.rows))
        longest = self._longest(longer)
        return static_shapes(self.batch_tokens, longer, longest, self.static_shapes)

    def _longest(self, lengths):
        """Returns the largest length of a pair, where `rows` have these."""
        return self.max_length

    def arrays(
        self, repeat: bool = True, epoch: int = 0, index: int = 0, row_multiple: int = 1
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yields batches of NumPy arrays, from batch `index` of `epoch` on.

        A batch is `({"source_ids", "target_ids"}, labels, weights)`: int32 `(B, S)` and `(B, T)`,
        int32 `(B, T)`, float32 `(B, T)`. A weight is 1 / the number of real labels in the batch, or
        0 on padding, so the sum of the weighted losses is the mean loss per token. With `links`,
        the inputs have an "alignment", float32 `(B, T, S)`, see `alignment_of_tokens`.

        Args:
            repeat: whether to continue with the following epochs, without end; otherwise, the
                batches end after this epoch.
            row_multiple: adds rows of padding to every batch, up to a multiple of this number, so
                that devices and micro-batches get the same number of rows.
        """
        try:
            yield from self._batches(epoch, row_multiple, index)
            if repeat:
                for next_epoch in itertools.count(epoch + 1):
                    yield from self._batches(next_epoch, row_multiple)
        except InputError as error:
            self.failure = error
            raise

    def dataset(
        self, repeat: bool = True, epoch: int = 0, index: int = 0, row_multiple: int = 1
    ) -> Any:
        """Returns the batches of `arrays`, with the same arguments, for `fit`.

        That is a `tf.data.Dataset`; on JAX and PyTorch, a generator, or a `keras.utils.PyDataset`
        with `repeat=False`. With this, each iteration starts at the same batch.
        """
        from keras_transformer.data.fit_batches import fit_batches  # NumPy alone makes the arrays

        ids = np.zeros((0, 0), "int32")
        inputs = {"source_ids": ids, "target_ids": ids}
        if self.links is not None:
            inputs["alignment"] = np.zeros((0, 0, 0), "float32")
        return fit_batches(
            lambda: self.arrays(repeat, epoch, index, row_multiple),
            (inputs, ids, ids.astype("float32")),
            None if repeat else self._count_of_epoch(epoch) - index,
        )

    def position_after(self, start: tuple[int, int], num_batches: int) -> tuple[int, int]:
        """Returns the `(epoch, index)` of the batch that follows `num_batches` from `start`."""
        epoch, index = start
        index += num_batches
        while True:
            left = index
            for section in self._sections(epoch):  # those that the training has not reached count
                left -= self._count(epoch, section)  # for nothing, and are not planned here
                if left < 0:
                    return epoch, index
            epoch, index = epoch + 1, left

    def padding(self) -> float:
        """Returns the share of padding in the positions of a section, both sides together."""
        pairs, batches = self._plan(0, self._sections(0)[0])
        positions = sum(rows * (source + target) for _, (rows, source, target) in batches)
        num_tokens = sum(int(side.lengths.sum()) for side in (pairs.source, pairs.target))
        return 1 - num_tokens / int(positions)

    def _count_of_epoch(self, epoch):
        return sum(self._count(epoch, section) for section in self._sections(epoch))

    def _count(self, epoch, section):
        if (epoch, section) not in self._num_batches:
            self._plan(epoch, section)
        return self._num_batches[epoch, section]

    def _plan(self, epoch, section):
        """Returns the `Drawn` pairs of a section, and a list of `(pairs, shape)`, its batches.

        The shape is `(rows, source width, target width)`.
        """
        # that of a text in memory, which has one section, is the same for the first section
        numbers = [self.seed, epoch, *([0, 2 + section] if section else [])]
        rng = np.random.default_rng(numbers) if self.shuffle else None
        drawn = self._drawn(epoch, section)
        lengths = drawn.source.lengths, drawn.target.lengths
        if not len(lengths[0]):  # weights below 1 may leave none
            batches = []
        elif self.static_shapes:
            plan = plan_static_batches(*lengths, self.shapes, rng)
            batches = [(pairs, (rows, length, length)) for pairs, (rows, length) in plan]
        else:
            batches = [
                (pairs, (len(pairs), *(side[pairs].max() for side in lengths)))
                for pairs in plan_batches(*lengths, self.batch_tokens, rng)
            ]
        self._num_batches[epoch, section] = len(batches)
        return drawn, batches

    def _batches(self, epoch, row_multiple, index=0):
        """Yields the batches of an epoch from number `index` on."""
        for section in self._sections(epoch):
            if (known := self._num_batches.get((epoch, section), index + 1)) <= index:
                index -= known
                continue
            drawn, batches = self._plan(epoch, section)
            yield from self._arrays(drawn, batches[index:], row_multiple)
            index = max(0, index - len(batches))

    def _arrays(self, drawn, batches, row_multiple):
        source, target, other_labels, links = drawn
        begins = [] if links is None else list(map(begins_word, self._tokenizers))
        for pairs, (num_rows, source_width, target_width) in batches:
            num_rows += -num_rows % row_multiple
            text = target.padded(pairs, num_rows, target_width)
            labels = text
            if other_labels is not None:
                labels = other_labels.padded(pairs, num_rows, target_width)
            real = text != PAD_ID
            inputs = {
                "source_ids": source.padded(pairs, num_rows, source_width),
                "target_ids": shift_right(text, np),
            }
            if links is not None:
                words = map(word_numbers, begins, (inputs["source_ids"], text))
                inputs["alignment"] = alignment_of_tokens(links, pairs, *words)
            weights = real.astype("float32") / np.float32(target.lengths[pairs].sum())
            yield inputs, labels, weights
