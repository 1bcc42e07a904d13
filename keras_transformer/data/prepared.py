"""Text that `keras-transformer prepare` has tokenized: a corpus on disk, and its batches.

NumPy alone reads it.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_transformer.config import DataConfig
from keras_transformer.data.batch_plan import check_weights, drawn_pairs
from keras_transformer.data.parallel import ParallelCorpus, Part, parts_of, tags_of
from keras_transformer.data.planned_batches import Drawn, PlannedBatches
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.data.shards import Manifest, Shard, read_shard, read_validation
from keras_transformer.errors import InputError
from keras_transformer.types import StrPath

FIXED = "source", "target", "tsv", "tag", "max_pairs"
"""The settings of a corpus that its preparation fixes. A weight may change."""


class PreparedCorpus:
    """Tokenized pairs in the shards of a directory.

    Args:
        path: the directory.
        data: `DataConfig` of a training. Its `temperature` counts, and the weights of its `train`;
            where it names no text, those of the preparation count.
    Attributes:
        manifest: `Manifest`.
        data: `data`, with the settings that the preparation has fixed.
        parts: the corpora that it consists of, each a `Part` with the weight of this training.
    Raises:
        InputError: the directory is not finished or damaged, or was made of other text than `data`
            names.
    """

    def __init__(self, path: StrPath, data: DataConfig) -> None:
        self.path = pathlib.Path(path)
        self.manifest = Manifest.load(path)
        self.data = _with_text_of(self.manifest.data, data, path)
        self.parts: Sequence[Part] = (Part(),)
        if self.data.train:
            self.parts = parts_of(self.data.train, self.manifest.sizes, self.data.temperature)

    def __len__(self) -> int:
        return self.manifest.summary.num_pairs

    @property
    def tags(self) -> list[str]:
        """The tags of its parts, each once."""
        return tags_of(self.parts)

    @property
    def sizes(self) -> np.ndarray:
        """Pairs of each part."""
        return self.manifest.num_pairs

    def checksum(self) -> str:
        """Returns the SHA-256 of the shards and of their tokenizers."""
        return self.manifest.checksum()

    def check_tokenizers(self, checksum: str) -> None:
        """Raises `InputError` unless the text was tokenized with the tokenizers of a checksum."""
        if checksum != self.manifest.tokenizers:
            raise InputError(
                "Expected text that was prepared with the tokenizer of the training. Received: "
                f"{self.path}, prepared with another. Prepare the text with the tokenizer of the "
                "run (tokenizer.model=FILE)."
            )

    def validation(self) -> ParallelCorpus:
        """Returns the text that `data.valid` names now, or else that was held out."""
        if _texts(self.data.valid) != _texts(self.manifest.data.valid):
            return ParallelCorpus.from_corpora(self.data.valid)
        return read_validation(self.path, self.manifest.validation)


def _texts(corpora):
    return [[getattr(corpus, name) for name in FIXED] for corpus in corpora]


def _with_text_of(prepared, data, path):
    """Returns the settings of a training on prepared text.

    Args:
        prepared, data: `DataConfig` of the preparation and of the training.
        path: the directory of the preparation, for the message.
    """
    is_same = not data.train or _texts(data.train) == _texts(prepared.train)
    if not is_same or data.dataset not in (None, prepared.dataset):
        names = [
            each.dataset or ", ".join(path for corpus in each.train for path in corpus.paths)
            for each in (prepared, data)
        ]
        raise InputError(
            f"Expected the text that {path} was prepared of: {names[0]}, with the same tags and "
            f"max_pairs. Received: {names[1]}. Prepare that text in another directory, or leave "
            "data.train out."
        )
    fixed = ("dataset", "max_length", "validation_share", "validation_limit")
    return dataclasses.replace(
        data,
        train=data.train or prepared.train,
        valid=data.valid or prepared.valid,
        **{name: getattr(prepared, name) for name in fixed},
    )


class PreparedBatches(PlannedBatches):
    """Batches of a `PreparedCorpus`, which has one shard in memory at a time.

    Those of a corpus with one shard are the batches of `TranslationBatches` for its text. Otherwise
    the shards, which are random samples of the text, come in an order that is drawn for each epoch,
    and each of them is planned alone.

    Args:
        corpus: `PreparedCorpus`.
        batch_tokens: maximum number of positions in one side of a batch, including padding; at
            least the `max_length` of the preparation.
        seed: int.
        static_shapes: see `PlannedBatches`.
    Raises:
        InputError: `batch_tokens` is too small, or the weights leave no pairs to an epoch. In an
            iteration: a shard is missing, or its checksum is another.

    Example:
        corpus = PreparedCorpus("prepared", DataConfig())
        batches = PreparedBatches(corpus, batch_tokens=4096)
        model.fit(batches.dataset(), steps_per_epoch=len(batches))
    """

    soft_labels = None

    def __init__(
        self,
        corpus: PreparedCorpus,
        batch_tokens: int = 4096,
        seed: int = 1,
        static_shapes: int = 0,
    ) -> None:
        max_length = corpus.data.max_length
        if batch_tokens < max_length:
            raise InputError(
                f"Expected batch_tokens of at least {max_length}, the max_length of the prepared "
                f"text {corpus.path}. Received: batch_tokens={batch_tokens}. Raise it, or prepare "
                "the text with a smaller data.max_length."
            )
        super().__init__(batch_tokens, max_length, True, seed, static_shapes)
        self._weights = [part.weight for part in corpus.parts]
        check_weights(self._weights, corpus.sizes)
        self._path, self._entries = corpus.path, corpus.manifest.shards
        self._shard = functools.lru_cache(1)(self._read)
        self.num_target_tokens = int(np.rint(corpus.manifest.num_target_tokens @ self._weights))
        """Labels of an epoch, including end tokens, without padding."""
        self.summary = corpus.manifest.summary

    def __len__(self) -> int:
        """Number of batches in an epoch, if the others are like the first shard's."""
        first = self._sections(0)[0]
        pairs, all_pairs = (
            np.dot(self._weights, sizes)
            for sizes in (
                self._entries[first].num_pairs,
                np.sum([entry.num_pairs for entry in self._entries], axis=0),
            )
        )
        return max(1, round(self._count(0, first) * all_pairs / pairs))

    @property
    def rows(self) -> tuple[RaggedIds, RaggedIds]:
        """The `RaggedIds` of source and target of one shard, a random sample."""
        shard = self._shard(self._sections(0)[0])
        return shard.source, shard.target

    def _read(self, section: int) -> Shard:
        return read_shard(self._path, self._entries[section])

    def _sections(self, epoch):
        return np.random.default_rng([self.seed, epoch, 2]).permutation(len(self._entries)).tolist()

    def _drawn(self, epoch, section):
        shard = self._shard(section)
        if set(self._weights) == {1.0}:
            return Drawn(shard.source, shard.target)
        pairs = drawn_pairs(shard.part_of, self._weights, self.seed, epoch)
        return Drawn(shard.source.take(pairs), shard.target.take(pairs))
