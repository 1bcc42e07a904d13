"""Batches of sentence pairs of similar length, each with about the same number of tokens.

Shapes: B batch (pairs), S source length, T target length.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.data.alignments import alignment_of_tokens, begins_word, word_numbers
from keras_transformer.data.batch_plan import (
    drawn_pairs,
    plan_batches,
    plan_static_batches,
    static_shapes,
)
from keras_transformer.data.parallel import ParallelCorpus
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.data.soft_labels import SoftLabels
from keras_transformer.data.tf_data import tf_dataset
from keras_transformer.errors import InputError
from keras_transformer.special_ids import PAD_ID, shift_right

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_transformer.tokenizers.tokenizer import Tokenizer


class TranslationBatches:
    """Tokenizes a corpus once, then makes different batches of it in each epoch.

    A batch has `B * max(S, T) <= batch_tokens`; `batch_plan` chooses its pairs. The batches of an
    epoch and their order depend only on `(seed, epoch)`. An epoch has each pair once, or as often
    as the weight of its part of the corpus says.

    Args:
        corpus: `ParallelCorpus`.
        tokenizer: tokenizer of the source, and of the target if `target_tokenizer` is None.
        target_tokenizer: tokenizer of the target, or None.
        batch_tokens: maximum number of positions in one side of a batch, including padding.
        max_length: maximum tokens per sentence, including the end token. At most `batch_tokens`.
            Longer pairs, and those with a side without tokens, are skipped, and counted in
            `summary`.
        shuffle: False gives every epoch the same order, the longest pairs first, and each pair
            once: for validation.
        seed: int.
        static_shapes: whether both sides of every batch are padded to one of the few (rows, length)
            in `shapes`, for compilers that compile each shape.
        sampling: `sampling` of the tokenizer's `encode_sampled`, which tokenizes the text
            differently in every epoch; 0 switches it off.
    Raises:
        InputError: no pair is short enough, the weights leave none to an epoch, or a tokenizer
            does not support the sampling.

    Example:
        batches = TranslationBatches(corpus, tokenizer, batch_tokens=4096)
        model.fit(batches.dataset(), steps_per_epoch=len(batches))
    """

    def __init__(
        self,
        corpus: ParallelCorpus,
        tokenizer: "Tokenizer",
        target_tokenizer: "Tokenizer | None" = None,
        batch_tokens: int = 4096,
        max_length: int = 128,
        shuffle: bool = True,
        seed: int = 1,
        static_shapes: bool = False,
        sampling: float = 0.0,
    ) -> None:
        self._tokenizers = tokenizer, target_tokenizer or tokenizer
        self.batch_tokens = batch_tokens
        self.max_length = min(max_length, batch_tokens)
        self.shuffle = shuffle
        self.seed = seed
        self.static_shapes = static_shapes
        self.sampling = sampling

        if sampling:
            for each in self._tokenizers:  # one without sampling fails here, not later
                each.encode_sampled([], sampling, seed)
        sides = corpus.source, corpus.target
        plain = [
            RaggedIds.encode(each, side) for each, side in zip(self._tokenizers, sides, strict=True)
        ]
        # a text of word-boundary signs alone, for instance; 1 is the end token
        is_blank = np.minimum(plain[0].lengths, plain[1].lengths) == 1
        is_long = ~is_blank & (np.maximum(plain[0].lengths, plain[1].lengths) > self.max_length)
        fits = ~(is_blank | is_long)
        if not fits.any():
            blank = f"{is_blank.sum()} with a blank side, the others" if is_blank.any() else "all"
            raise InputError(
                f"Expected pairs of 1 to {self.max_length} tokens per side. Received: "
                f"{len(corpus)} pairs, {blank} longer. Raise max_length or batch_tokens."
            )
        self._part_of = corpus.part_of[fits]
        self._weights = [part.weight if shuffle else 1.0 for part in corpus.parts]
        sizes = np.bincount(self._part_of, minlength=len(self._weights))
        if max(sizes * self._weights) < 1:
            raise InputError(
                "Expected weights that leave a pair to each epoch. Received: "
                f"weight={', '.join(f'{weight:g}' for weight in self._weights)} for "
                f"{', '.join(map(str, sizes))} pairs. Raise a weight."
            )
        self.is_used = fits
        """Bool, which pairs of the corpus are in the batches."""
        self.rows = [rows.select(fits) for rows in plain]
        """The `RaggedIds` of source and target, without sampling."""
        self._texts = [list(itertools.compress(side, fits)) if sampling else [] for side in sides]
        of_parts = np.bincount(self._part_of, self.rows[1].lengths, len(self._weights))
        self.num_target_tokens = int(np.rint(of_parts @ self._weights))
        """Labels of an epoch, including end tokens, without padding (and without sampling)."""
        self.summary = dataclasses.replace(
            corpus.summary,
            num_pairs=int(fits.sum()),
            num_blank=corpus.summary.num_blank + int(is_blank.sum()),
            num_long=int(is_long.sum()),
            max_length=self.max_length,
        )
        self.soft_labels: SoftLabels | None = None
        """Labels that may replace those of the text; not together with `sampling`."""
        self.links: RaggedIds | None = None
        """Links `(L, 2)` of the words of each pair, see `read_links`; with them, batches have
        alignments."""
        self._num_batches: dict[int, int] = {}  # from epoch to number of batches, as far as known

    def __len__(self) -> int:
        """Number of batches in epoch 0; other epochs have about as many."""
        return self._count(0)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The possible (rows, length) of batches with `static_shapes`."""
        return static_shapes(self.batch_tokens, self.max_length)

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
        yield from itertools.islice(self._batches(epoch, row_multiple), index, None)
        if repeat:
            for next_epoch in itertools.count(epoch + 1):
                yield from self._batches(next_epoch, row_multiple)

    def dataset(
        self, repeat: bool = True, epoch: int = 0, index: int = 0, row_multiple: int = 1
    ) -> "tf.data.Dataset":
        """Returns the batches of `arrays`, which has the same arguments, as a `tf.data.Dataset`.

        With `repeat=False`, each iteration starts at the same batch.
        """
        ids = np.zeros((0, 0), "int32")
        inputs = {"source_ids": ids, "target_ids": ids}
        if self.links is not None:
            inputs["alignment"] = np.zeros((0, 0, 0), "float32")
        return tf_dataset(
            lambda: self.arrays(repeat, epoch, index, row_multiple),
            (inputs, ids, ids.astype("float32")),
            None if repeat else self._count(epoch) - index,
        )

    def position_after(self, start: tuple[int, int], num_batches: int) -> tuple[int, int]:
        """Returns the `(epoch, index)` of the batch that follows `num_batches` from `start`."""
        epoch, index = start
        index += num_batches
        while index >= self._count(epoch):
            index -= self._count(epoch)
            epoch += 1
        return epoch, index

    def padding(self) -> float:
        """Returns the share of padding in the positions of epoch 0, both sides together."""
        sides, batches = self._plan(0)
        positions = sum(rows * (source + target) for _, (rows, source, target) in batches)
        return 1 - sum(int(side.lengths.sum()) for side in sides) / int(positions)

    def _count(self, epoch):
        if epoch not in self._num_batches:
            self._plan(epoch)
        return self._num_batches[epoch]

    def _plan(self, epoch):
        """Returns `((source, target), batches)`: `RaggedIds`, and `(pairs, shape)` for each batch.

        The shape is `(rows, source width, target width)`.
        """
        rng = np.random.default_rng([self.seed, epoch]) if self.shuffle else None
        source, target = self._rows(epoch)
        lengths = source.lengths, target.lengths
        if self.static_shapes:
            plan = plan_static_batches(*lengths, self.shapes, rng)
            batches = [(pairs, (rows, length, length)) for pairs, (rows, length) in plan]
        else:
            plan = plan_batches(*lengths, self.batch_tokens, rng)
            batches = [
                (pairs, (len(pairs), source.lengths[pairs].max(), target.lengths[pairs].max()))
                for pairs in plan
            ]
        self._num_batches[epoch] = len(batches)
        return (source, target), batches

    def _rows(self, epoch):
        rows, texts = self.rows, self._texts
        drawn = self._drawn(epoch)
        if drawn is not None:
            rows = [side.take(drawn) for side in rows]
            texts = [[side[i] for i in drawn] for side in texts] if self.sampling else texts
        if not self.sampling:
            return rows
        # seeds that differ from the plan's and between the sides
        seeds = np.random.SeedSequence([self.seed, epoch]).generate_state(2)
        return [
            RaggedIds.encode_sampled(*args, self.sampling, int(seed), plain, self.max_length)
            for *args, seed, plain in zip(self._tokenizers, texts, seeds, rows, strict=True)
        ]

    def _drawn(self, epoch):
        """Returns the pairs of an epoch, see `drawn_pairs`; None: each pair once."""
        if set(self._weights) == {1.0}:
            return None
        return drawn_pairs(self._part_of, self._weights, self.seed, epoch)

    def _batches(self, epoch, row_multiple):
        (source, target), batches = self._plan(epoch)
        drawn = None
        if self.soft_labels is not None:
            rng = np.random.default_rng([self.seed, epoch, 1])  # not the plan's
            text = self.rows[1]
            drawn = RaggedIds(self.soft_labels.draw(text.ids, rng), text.lengths)
            if (pairs := self._drawn(epoch)) is not None:
                drawn = drawn.take(pairs)
        begins = [] if self.links is None else list(map(begins_word, self._tokenizers))
        links = self.links
        if links is not None and (pairs := self._drawn(epoch)) is not None:
            links = links.take(pairs)
        for pairs, (num_rows, source_width, target_width) in batches:
            num_rows += -num_rows % row_multiple
            text = target.padded(pairs, num_rows, target_width)
            labels = text if drawn is None else drawn.padded(pairs, num_rows, target_width)
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
