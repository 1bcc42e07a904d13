"""Batches of sentence pairs of about the same length, each of about the same number of tokens.

Shapes: B batch (pairs), S source length, T target length.
"""

import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from keras_transformer.data.batch_plan import (
    plan_batches,
    plan_static_batches,
    static_shapes,
)
from keras_transformer.data.id_rows import IdRows
from keras_transformer.special_ids import PAD_ID, START_ID

NUM_PREFETCHED = 4


class TranslationBatches:
    """Splits a corpus into pieces once, then draws batches from it, anew each epoch.

    A batch has `B * max(S, T) <= batch_tokens`; how pairs are put together is in `batch_plan`.
    What an epoch consists of, and in which order, depends on `(seed, epoch)` alone.

    Args:
        corpus: `ParallelCorpus`.
        tokenizer: of the source, and of the target too unless `target_tokenizer` is given.
        target_tokenizer: tokenizer or None.
        batch_tokens: most padded positions of a side of a batch.
        max_length: most pieces of a side, the end id counted; longer pairs are left out, and
            counted in `summary`. Never above `batch_tokens`.
        shuffle: False sorts every epoch alike, the longest pairs first: for validation.
        seed: int.
        static_shapes: every batch has one of the few (rows, length) in `shapes`, on both sides,
            filled up with rows of padding: for compilers that compile each shape.
        sampling: 0, or the strength of subword sampling (`encode_sampled`): the text is then
            split into other pieces each epoch.
    Raises:
        ValueError: no pair is short enough, or a tokenizer has no such sampling.

    Example:
        batches = TranslationBatches(corpus, tokenizer, batch_tokens=4096)
        model.fit(batches.dataset(), steps_per_epoch=len(batches))
    """

    def __init__(
        self,
        corpus,
        tokenizer,
        target_tokenizer=None,
        batch_tokens=4096,
        max_length=128,
        shuffle=True,
        seed=1,
        static_shapes=False,
        sampling=0.0,
    ):
        self._tokenizers = tokenizer, target_tokenizer or tokenizer
        self.batch_tokens = batch_tokens
        self.max_length = min(max_length, batch_tokens)
        self.shuffle = shuffle
        self.seed = seed
        self.static_shapes = static_shapes
        self.sampling = sampling

        if sampling:
            for each in self._tokenizers:
                each.encode_sampled([], sampling, seed)  # refuses now, not in mid-training
        sides = corpus.source, corpus.target
        plain = [
            IdRows.encode(each, side) for each, side in zip(self._tokenizers, sides, strict=True)
        ]
        fits = np.maximum(plain[0].lengths, plain[1].lengths) <= self.max_length
        if not fits.any():
            raise ValueError(
                f"Expected pairs of at most {self.max_length} pieces a side. Received: "
                f"{len(corpus)} pairs, all longer. Raise max_length or batch_tokens."
            )
        self._plain = [rows.select(fits) for rows in plain]
        self._texts = [list(itertools.compress(side, fits)) if sampling else [] for side in sides]
        self.num_target_tokens = int(self._plain[1].lengths.sum())
        """Real labels an epoch, end ids counted (with sampling: if nothing were sampled)."""
        self.summary = dataclasses.replace(
            corpus.summary,
            num_pairs=int(fits.sum()),
            num_long=int((~fits).sum()),
            max_length=self.max_length,
        )
        self._num_batches = {}  # epoch: batches, where already known

    def __len__(self):
        """Batches of epoch 0; other epochs have about as many."""
        return self._count(0)

    @property
    def shapes(self):
        """The (rows, length) that batches have with `static_shapes`."""
        return static_shapes(self.batch_tokens, self.max_length)

    def dataset(self, repeat=True, epoch=0, index=0):
        """Returns a `tf.data.Dataset` that starts at batch `index` of `epoch`.

        Its elements are `({"source_ids", "target_ids"}, labels, weights)`: int32 `(B, S)` and
        `(B, T)`, int32 `(B, T)`, float32 `(B, T)`. A weight is 1 / the batch's number of real
        labels, or 0 on padding: the sum of weighted losses is the mean of a token.

        Args:
            repeat: go on with the epochs that follow, without end; else stop after this one, and
                start with it again when iterated again.
        """

        def generate():
            yield from itertools.islice(self._batches(epoch), index, None)
            if repeat:
                for next_epoch in itertools.count(epoch + 1):
                    yield from self._batches(next_epoch)

        ids = tf.TensorSpec([None, None], tf.int32)
        weights = tf.TensorSpec([None, None], tf.float32)
        dataset = tf.data.Dataset.from_generator(
            generate,
            output_signature=({"source_ids": ids, "target_ids": ids}, ids, weights),
        )
        num_batches = tf.data.INFINITE_CARDINALITY if repeat else self._count(epoch) - index
        options = tf.data.Options()
        options.autotune.enabled = False  # it can stall the end of an epoch for seconds
        return (
            dataset.prefetch(NUM_PREFETCHED)
            .apply(tf.data.experimental.assert_cardinality(num_batches))
            .with_options(options)
        )

    def position_after(self, start, num_batches):
        """Returns the `(epoch, index)` of the batch that follows `num_batches` from `start`."""
        epoch, index = start
        index += num_batches
        while index >= self._count(epoch):
            index -= self._count(epoch)
            epoch += 1
        return epoch, index

    def _count(self, epoch):
        if epoch not in self._num_batches:
            self._plan(epoch)
        return self._num_batches[epoch]

    def _plan(self, epoch):
        """Returns `((source, target), batches)`: rows of ids, and `(pairs, shape)` of each batch.

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
        if not self.sampling:
            return self._plain
        # Seeds of their own for the sides: the plan's draws are seeded with (seed, epoch) alone.
        seeds = np.random.SeedSequence([self.seed, epoch]).generate_state(2)
        return [
            IdRows.encode_sampled(*args, self.sampling, int(seed), plain, self.max_length)
            for *args, seed, plain in zip(
                self._tokenizers, self._texts, seeds, self._plain, strict=True
            )
        ]

    def _batches(self, epoch):
        """Yields the epoch's batches as NumPy arrays."""
        (source, target), batches = self._plan(epoch)
        for pairs, (num_rows, source_width, target_width) in batches:
            labels = target.padded(pairs, num_rows, target_width)
            real = labels != PAD_ID
            target_ids = np.full_like(labels, PAD_ID)
            target_ids[:, 1:] = np.where(real[:, 1:], labels[:, :-1], PAD_ID)
            target_ids[: len(pairs), 0] = START_ID
            inputs = {
                "source_ids": source.padded(pairs, num_rows, source_width),
                "target_ids": target_ids,
            }
            weights = real.astype("float32") / np.float32(target.lengths[pairs].sum())
            yield inputs, labels, weights
