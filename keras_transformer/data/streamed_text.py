"""The text of a preparation, which may be larger than memory."""

import hashlib
import itertools
from collections.abc import Iterator

import numpy as np

from keras_transformer.config import DataConfig
from keras_transformer.data.parallel import (
    CorpusSummary,
    ParallelCorpus,
    Part,
    from_tfds,
    held_out_pairs,
    pairs_of,
    parts_of,
    tags_of,
    with_tag,
)
from keras_transformer.data.preparation import Chunk
from keras_transformer.errors import InputError
from keras_transformer.files.text import is_blank


class StreamedText:
    """The pairs that a `DataConfig` names, which are read from their files each time.

    They are those of `ParallelCorpus.from_corpora`, in the same order, and the same pairs are held
    out where no text for validation is named.

    Args:
        data: `DataConfig`.
        seed: int, for the pairs that are held out.
    Attributes:
        sizes: number of pairs of each corpus, without those with a blank side.
        num_blank: number of pairs with a blank side.
        checksum: SHA-256 of all pairs.
        num_train: number of pairs that are not held out.
        validation: `ParallelCorpus`; that of held-out pairs is there when `chunks` has ended.
        num_overlapping: number of its pairs that the training text has too, likewise.
    Raises:
        InputError: what `ParallelCorpus` refuses.
    """

    def __init__(self, data: DataConfig, seed: int) -> None:
        self._corpora = data.train
        self._dataset: ParallelCorpus | None = None
        self.validation: ParallelCorpus | None = None
        self.num_overlapping = 0
        if data.dataset is not None:
            self._dataset, self.validation = from_tfds(data.dataset.removeprefix("tfds:"))
        if data.valid:
            self.validation = ParallelCorpus.from_corpora(data.valid)
        self.sizes: list[int] = []
        self.num_blank, digest = 0, hashlib.sha256()
        for part in range(len(self._corpora) or 1):
            size = self._read(part, digest)
            if not size:
                files = ", ".join(map(str, self._corpora[part].paths))
                raise InputError(
                    "Expected at least one pair with text on both sides. "
                    f"Received: none (files: {files})"
                )
            self.sizes.append(size)
        self.checksum = digest.hexdigest()
        self.parts = [Part()]
        if self._corpora:
            self.parts = parts_of(self._corpora, self.sizes, data.temperature)
        self._is_held_out = np.zeros(sum(self.sizes), bool)
        if self.validation is None:
            options = data.validation_share, data.validation_limit, seed
            self._is_held_out = held_out_pairs(sum(self.sizes), *options)
        self.num_train = int((~self._is_held_out).sum())

    def _read(self, part, digest):
        """Returns the number of pairs of a part, all of which it reads."""
        size, most = 0, self._corpora[part].max_pairs if self._corpora else None
        for pair in self._stripped(part):
            if any(map(is_blank, pair)):
                self.num_blank += 1
            elif most is None or size < most:
                size += 1
                digest.update("\n".join((*pair, "")).encode("utf-8", "surrogatepass"))
        return size

    def _stripped(self, part):
        """Yields the pairs of a part as its files have them, without white space at the ends."""
        if self._dataset is not None:
            self.num_blank = self._dataset.summary.num_blank
            yield from zip(self._dataset.source, self._dataset.target, strict=True)
            return
        for source, target in pairs_of(self._corpora[part]):
            yield source.strip(), target.strip()

    def _pairs(self, part):
        """Yields `(source, target, is_held_out)` for each pair of a part that has no blank side."""
        pairs = (pair for pair in self._stripped(part) if not any(map(is_blank, pair)))
        before = sum(self.sizes[:part])
        tag = self.parts[part].tag
        is_held_out = self._is_held_out[before : before + self.sizes[part]].tolist()
        for (source, target), out in zip(pairs, is_held_out, strict=False):  # as max_pairs says
            yield source if tag is None else with_tag(source, tag), target, out

    @property
    def tags(self) -> list[str]:
        """The tags of training and validation, each once."""
        return tags_of([*self.parts, *(self.validation.parts if self.validation else ())])

    @property
    def summary(self) -> CorpusSummary:
        return CorpusSummary(self.num_train, self.num_blank)

    @property
    def source(self) -> Iterator[str]:
        """The source sentences to train on, read anew."""
        parts = map(self._pairs, range(len(self.parts)))
        return (source for pairs in parts for source, _, out in pairs if not out)

    @property
    def target(self) -> Iterator[str]:
        """Their translations."""
        parts = map(self._pairs, range(len(self.parts)))
        return (target for pairs in parts for _, target, out in pairs if not out)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Yields the pairs to train on as a `Chunk` of each `size` pairs of a part."""
        held_out: list[tuple[str, str]] = []
        part_of: list[int] = []
        wanted: set[tuple[str, str]] = set()
        if self.validation is not None:
            wanted = set(zip(self.validation.source, self.validation.target, strict=True))
        found, numbers = set(), itertools.count()

        def to_train_on(part):
            for source, target, out in self._pairs(part):
                if out:
                    held_out.append((source, target))
                    part_of.append(part)
                    continue
                if (source, target) in wanted:
                    found.add((source, target))
                yield source, target

        for part in range(len(self.parts)):
            pairs = to_train_on(part)
            while block := list(itertools.islice(pairs, size)):
                sources, targets = ([pair[side] for pair in block] for side in (0, 1))
                yield Chunk(next(numbers), part, sources, targets)
        if held_out:
            sources, targets = ([pair[side] for pair in held_out] for side in (0, 1))
            of_text = CorpusSummary(len(held_out)), self.parts, np.array(part_of, "int32")
            self.validation = ParallelCorpus(sources, targets, *of_text)
        elif self.validation is not None:
            pairs = zip(self.validation.source, self.validation.target, strict=True)
            self.num_overlapping = sum(pair in found for pair in pairs)
