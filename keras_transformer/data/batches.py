"""Batches of the sentence pairs of a text in memory."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.data.batch_plan import check_weights, drawn_pairs
from keras_transformer.data.parallel import ParallelCorpus
from keras_transformer.data.planned_batches import Drawn, PlannedBatches
from keras_transformer.data.ragged_ids import RaggedIds, left_out
from keras_transformer.data.soft_labels import SoftLabels
from keras_transformer.errors import InputError

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer


class TranslationBatches(PlannedBatches):
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
        static_shapes: both sides of every batch are padded to one of at most so many (rows,
            length), those in `shapes`, for compilers that compile each shape. 0: there are any.
        sampling: `sampling` of the tokenizer's `encode_sampled`, which tokenizes the text
            differently in every epoch; 0 switches it off.
    Raises:
        InputError: no pair is short enough, the weights leave none to an epoch, or a tokenizer
            does not support the sampling.

    Example:
        batches = TranslationBatches(corpus, tokenizer, batch_tokens=4096)
        model.fit(batches.dataset(), steps_per_epoch=len(batches))
    """

    rows: Sequence[RaggedIds] = ()
    """Source and target of all pairs."""

    def __init__(
        self,
        corpus: ParallelCorpus,
        tokenizer: "Tokenizer",
        target_tokenizer: "Tokenizer | None" = None,
        batch_tokens: int = 4096,
        max_length: int = 128,
        shuffle: bool = True,
        seed: int = 1,
        static_shapes: int = 0,
        sampling: float = 0.0,
    ) -> None:
        max_length = min(max_length, batch_tokens)
        super().__init__(batch_tokens, max_length, shuffle, seed, static_shapes)
        self._tokenizers = tokenizer, target_tokenizer or tokenizer
        self.sampling = sampling

        if sampling:
            for each in self._tokenizers:  # one without sampling fails here, not later
                each.encode_sampled([], sampling, seed)
        sides = corpus.source, corpus.target
        plain = list(map(RaggedIds.encode, self._tokenizers, sides))
        is_blank, is_long = left_out(plain[0], plain[1], self.max_length)
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
        check_weights(self._weights, sizes)
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

    def _longest(self, lengths):
        return self.max_length if self.sampling else int(lengths.max())

    def _drawn(self, epoch, section):
        indices = None  # each pair once
        if set(self._weights) != {1.0}:
            indices = drawn_pairs(self._part_of, self._weights, self.seed, epoch)

        def chosen(rows):
            return rows if rows is None or indices is None else rows.take(indices)

        source, target = self._sampled(epoch, indices) if self.sampling else map(chosen, self.rows)
        labels = None
        if self.soft_labels is not None:
            rng = np.random.default_rng([self.seed, epoch, 1])  # not the plan's
            text = self.rows[1]
            labels = RaggedIds(self.soft_labels.draw(text.ids, rng), text.lengths)
        return Drawn(source, target, chosen(labels), chosen(self.links))

    def _sampled(self, epoch, indices):
        """Returns random tokenizations of both sides, for the pairs `indices` or for all."""
        rows, texts = self.rows, self._texts
        if indices is not None:
            rows = [side.take(indices) for side in rows]
            texts = [[side[i] for i in indices] for side in texts]
        # seeds that differ from the plan's and between the sides
        seeds = np.random.SeedSequence([self.seed, epoch]).generate_state(2)
        return [
            RaggedIds.encode_sampled(*args, self.sampling, int(seed), plain, self.max_length)
            for *args, seed, plain in zip(self._tokenizers, texts, seeds, rows, strict=True)
        ]
