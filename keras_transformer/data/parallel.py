"""Parallel text: line i of the target is the translation of line i of the source."""

import contextlib
import dataclasses
import hashlib
import itertools
import re
import socket
import sys
import urllib.request
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.config import CorpusConfig
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_parallel, is_blank, iterate_lines
from keras_transformer.types import Self, StrPath

if TYPE_CHECKING:
    import tensorflow as tf

CHUNK = 1024  # pairs taken from a dataset at once


@dataclasses.dataclass(frozen=True)
class CorpusSummary:
    """How many pairs of a corpus are used, and why the others are not; `str()` is one line."""

    num_pairs: int
    """Pairs that are used."""
    num_blank: int = 0
    """Pairs skipped because a side is blank, or has no tokens."""
    num_long: int = 0
    """Pairs skipped because a sentence has more than `max_length` tokens."""
    max_length: int | None = None
    """Maximum tokens per sentence, including the end token; None before text is tokenized."""

    def __str__(self):
        left_out = []
        if self.num_blank:
            left_out.append(f"{self.num_blank:,} with a blank side")
        if self.num_long:
            left_out.append(f"{self.num_long:,} longer than {self.max_length} tokens")
        return f"{self.num_pairs:,} pairs; left out: {', '.join(left_out) or 'none'}"


class Part(NamedTuple):
    """One of the corpora that a `ParallelCorpus` consists of."""

    name: str = ""
    """The path of its file, that of the target if there are two."""
    weight: float = 1.0
    """How often an epoch has each of its pairs, on average."""
    tag: str | None = None
    """What stands before each of its sources, and a space."""
    tag_from: str | None = None
    """The token whose embedding a new tag begins with; None: the mean of all."""


class ParallelCorpus:
    """Sentence pairs in memory, none with a blank side.

    Args:
        source, target: lists of strings of the same length.
        summary: `CorpusSummary`.
        parts: the corpora that it consists of.
        part_of: int array, the index in `parts` of each pair; None: all are of the first.
        lines: int array, the line of each pair in the text that it was read from, from 0, where
            some lines are left out; None: there is no other text.
        num_lines: number of lines of that text.
        is_tagged: bool array, whether the text that each pair was read from has its tag already;
            None: no text has one.
    """

    def __init__(
        self,
        source: list[str],
        target: list[str],
        summary: CorpusSummary,
        parts: Sequence[Part] = (Part(),),
        part_of: Any = None,
        lines: np.ndarray | None = None,
        num_lines: int | None = None,
        is_tagged: np.ndarray | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.summary = summary
        self.parts = parts
        self.part_of = np.zeros(len(source), "int32") if part_of is None else part_of
        self.lines = np.arange(len(source)) if lines is None else lines
        self.num_lines = len(source) if num_lines is None else num_lines
        self.is_tagged = np.zeros(len(source), bool) if is_tagged is None else is_tagged

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Returns the corpus of an iterable of (source, target) strings.

        Pairs with a blank side are skipped and counted: one that is empty, or whose characters are
        all invisible, such as white space, joiners and soft hyphens. White space at the ends of a
        text is removed.

        Raises:
            ValueError: an item is no pair of strings, or no pair is left.
        """
        return cls._from_pairs(pairs)

    @classmethod
    def _from_pairs(cls, pairs, files=""):
        """Returns the corpus of `from_pairs`; an error about all pairs names their files."""
        if not isinstance(pairs, Iterable):
            raise InputError(
                "Expected a list of pairs of strings, or another iterable of them. "
                f"Received: {pairs!r:.80}. Put a single pair in a list."
            )
        stripped = []
        for number, pair in enumerate(pairs):
            match pair:
                case str(first), str(second):
                    stripped.append((first.strip(), second.strip()))
                case _:
                    raise InputError(
                        "Expected pairs of strings, (source, target). "
                        f"Received: {pair!r:.80} as item {number}. Leave it out, or correct it."
                    )
        lines = [i for i, pair in enumerate(stripped) if not any(map(is_blank, pair))]
        if not lines:
            raise InputError(
                "Expected at least one pair with text on both sides. "
                f"Received: {len(stripped)} pairs, all with a blank side.{files}"
            )
        sources, targets = ([stripped[i][side] for i in lines] for side in (0, 1))
        summary = CorpusSummary(len(lines), len(stripped) - len(lines))
        return cls(sources, targets, summary, lines=np.array(lines), num_lines=len(stripped))

    @classmethod
    def from_files(cls, source: StrPath, target: StrPath) -> Self:
        """Returns the corpus of two text files with one sentence per line, perhaps compressed.

        Raises:
            ValueError: a file is missing, unreadable or not UTF-8, the line counts differ, both
                have the same text, or no pair has text on both sides.
        """
        pairs = pairs_of_files(source, target)
        return cls._from_pairs(pairs, f" (files: {source}, {target})")

    @classmethod
    def from_tsv(cls, path: StrPath) -> Self:
        """Returns the corpus of a file with lines of source, tab, target; "-": standard input.

        Further columns, such as the authors of a sentence, are ignored.

        Raises:
            ValueError: the file is missing, unreadable or not UTF-8, a line that is not blank has
                one column, or no pair has text on both sides.
        """
        return cls._from_pairs(pairs_of_tsv(path), f" (file: {_name_of(path)})")

    @classmethod
    def from_corpora(cls, corpora: Sequence[CorpusConfig], temperature: float = 1.0) -> Self:
        """Returns the pairs of several corpora, one after the other, each with its weight and tag.

        A source that begins with the tag of its corpus already has it once.

        Args:
            corpora: list of `CorpusConfig`.
            temperature: see `parts_of`.
        Raises:
            ValueError: what `from_files` and `from_tsv` refuse.
        """
        texts = []
        for each in corpora:
            text = cls.from_files(*each.paths) if each.tsv is None else cls.from_tsv(each.tsv)
            is_used = np.arange(len(text)) < (each.max_pairs or len(text))
            text = text._select(is_used, text.summary)
            if each.tag is not None:
                text.is_tagged = np.array([source.startswith(each.tag) for source in text.source])
                text.source = [with_tag(source, each.tag) for source in text.source]
            texts.append(text)
        sizes = [len(text) for text in texts]
        before = itertools.accumulate((text.num_lines for text in texts[:-1]), initial=0)
        return cls(
            [source for text in texts for source in text.source],
            [target for text in texts for target in text.target],
            CorpusSummary(sum(sizes), num_blank=sum(text.summary.num_blank for text in texts)),
            parts_of(corpora, sizes, temperature),
            np.repeat(np.arange(len(sizes)), sizes),
            np.concatenate([text.lines + i for text, i in zip(texts, before, strict=True)]),
            sum(text.num_lines for text in texts),
            np.concatenate([text.is_tagged for text in texts]),
        )

    @classmethod
    def from_dataset(cls, dataset: "tf.data.Dataset") -> Self:
        """Returns the corpus of a finite `tf.data.Dataset` of (source, target) string scalars.

        Raises:
            ValueError: the dataset has no end, or no pair with text on both sides.
        """
        import tensorflow as tf  # here, because text files do not need it

        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise InputError("Expected a finite dataset. Received: one that repeats without end.")
        return cls.from_pairs(
            (source.decode("utf-8", "replace"), target.decode("utf-8", "replace"))
            for batch in dataset.batch(CHUNK).as_numpy_iterator()
            for source, target in zip(*batch, strict=True)
        )

    def split(self, share: float, limit: int, seed: int) -> "tuple[ParallelCorpus, ParallelCorpus]":
        """Returns `(train, held_out)`, both in the order of this corpus.

        The summary of `train` includes the pairs that this corpus had skipped.

        Args:
            share: share of the pairs that are held out, between 0 and 1; at least one pair.
            limit: maximum number of pairs held out.
            seed: int, for the random choice.
        Raises:
            ValueError: nothing would be left to train on.
        """
        held_out = held_out_pairs(len(self), share, limit, seed)
        return (
            self._select(~held_out, self.summary),
            self._select(held_out, CorpusSummary(int(held_out.sum()))),
        )

    @property
    def sizes(self) -> np.ndarray:
        """Pairs of each part."""
        return np.bincount(self.part_of, minlength=len(self.parts))

    @property
    def tags(self) -> list[str]:
        """The tags of its parts, each once."""
        return tags_of(self.parts)

    def untagged_source(self) -> list[str]:
        """Returns the source sentences without the tags of their parts."""
        tags = [f"{part.tag} " if part.tag else "" for part in self.parts]
        return [
            text.removeprefix(tags[i]) for text, i in zip(self.source, self.part_of, strict=True)
        ]

    def groups(self) -> dict[str, list[int]]:
        """Returns the indices of the pairs of each tag and of each part, by name.

        A group that is the whole text, or the same as that of a tag, is left out.
        """
        present = np.unique(self.part_of)  # a part may have lost all its pairs to another split
        tags = [self.parts[i].tag or "no tag" for i in present]
        names = [self.parts[i].name for i in present]
        groups = {}
        for labels in (tags, names) if len(set(tags)) < len(tags) else (tags,):
            for label in sorted(set(labels)) if len(set(labels)) > 1 else ():
                parts = [i for i, each in zip(present, labels, strict=True) if each == label]
                groups[label] = np.flatnonzero(np.isin(self.part_of, parts)).tolist()
        return groups

    def checksum(self) -> str:
        """Returns the SHA-256 of the text and of what is in which part, in hexadecimal digits."""
        digest = hashlib.sha256()
        if len(self.parts) > 1:  # a pair in another part has another weight
            digest.update(self.part_of.astype("int32").tobytes())
        for side in (self.source, self.target):
            for text in side:
                digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()

    def _select(self, chosen, summary):
        source = list(itertools.compress(self.source, chosen))
        target = list(itertools.compress(self.target, chosen))
        summary = dataclasses.replace(summary, num_pairs=len(source))
        parts = self.parts, self.part_of[chosen], self.lines[chosen], self.num_lines
        return ParallelCorpus(source, target, summary, *parts, self.is_tagged[chosen])


def tags_of(parts):
    """Returns the tags of some parts or corpora, each once: list of str."""
    return list(dict.fromkeys(part.tag for part in parts if part.tag is not None))


def with_tag(source, tag):
    """Returns a source that begins with a tag and a space, once."""
    return f"{tag} {source.removeprefix(tag).lstrip()}"


def parts_of(corpora, sizes, temperature):
    """Returns the `Part` of each `CorpusConfig`.

    Args:
        sizes: number of pairs of each corpus.
        temperature: T of the sampling by size: the weight of a corpus of n pairs, where the largest
            has N, is multiplied by (N / n)^(1 - 1 / T), so that an epoch has pairs in proportion to
            n^(1/T) (Arivazhagan et al., 2019, https://arxiv.org/abs/1907.05019).
    """
    factors = [(max(sizes) / size) ** (1 - 1 / temperature) for size in sizes]
    return [
        Part(each.paths[-1], each.weight * factor, each.tag, each.tag_from)
        for each, factor in zip(corpora, factors, strict=True)
    ]


def held_out_pairs(num_pairs, share, limit, seed):
    """Returns which of a number of pairs are held out, as bool; see `ParallelCorpus.split`."""
    num_held_out = min(max(1, round(share * num_pairs)), limit)
    if not 0 < num_held_out < num_pairs:
        raise InputError(
            "Expected some pairs to train on and some to hold out. Received: "
            f"{num_pairs} pairs, share={share}, limit={limit}."
        )
    held_out = np.zeros(num_pairs, bool)
    held_out[np.random.default_rng(seed).permutation(num_pairs)[:num_held_out]] = True
    return held_out


def pairs_of(corpus):
    """Yields the pairs of the files of a `CorpusConfig`, one line of text after the other."""
    if corpus.tsv is None:
        return pairs_of_files(*corpus.paths)
    return pairs_of_tsv(corpus.tsv)


def pairs_of_files(source, target):
    """Yields the pairs of two files, see `ParallelCorpus.from_files`."""
    counts, is_same, is_text, has_tab = [0, 0], True, False, False
    for pair in itertools.zip_longest(iterate_lines(source), iterate_lines(target)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if is_same and None not in pair:
            first, second = (line.strip() for line in pair)
            is_same, is_text, has_tab = (
                first == second,
                is_text or bool(first),
                has_tab or "\t" in first,
            )
        if counts[0] == counts[1]:
            yield pair
    check_parallel(source, range(counts[0]), target, range(counts[1]))
    if is_same and is_text:
        raise InputError(
            "Expected the text of two languages. "
            f"Received: the same {counts[0]:,} lines in {source} and {target}. "
            + (
                "They have columns: give the file as tsv (--train F)."
                if has_tab
                else "Give the other language for one of them."
            )
        )


def pairs_of_tsv(path):
    """Yields the pairs of a file with two columns, see `ParallelCorpus.from_tsv`."""
    if path == "-" and sys.stdin.isatty():
        raise InputError(
            "Expected text on standard input. Received: a terminal. "
            "Write the same text to a pipe as at the start of the run."
        )
    for number, line in enumerate(iterate_lines(None if path == "-" else path), start=1):
        columns = line.split("\t")
        if len(columns) == 1 and not is_blank(line):
            raise InputError(
                "Expected source and translation on each line, separated by a tab. Received: "
                f"{_name_of(path)}, line {number}: {line!r:.60}. Correct the line, or remove it."
            )
        yield columns[0], columns[1] if len(columns) > 1 else ""


def _name_of(path):
    return "standard input" if path == "-" else path


# === Data sets of TensorFlow Datasets (https://www.tensorflow.org/datasets) ===

DOWNLOADS = "storage.googleapis.com"
"""A host from which TFDS downloads; where its name is not known, there is no network."""
RETRIES = 6
"""How often TFDS tries again, in 13 seconds; the 10 times of its own take 200."""


def from_tfds(name):
    """Returns `(train, validation)` of a translation data set, downloaded if necessary.

    Args:
        name: in the notation of TFDS, such as "ted_hrlr_translate/pt_to_en". The source is the
            language that the data set defines as its input. A name with swapped languages, such as
            "wmt14_translate/en-de", means the data set in the other direction.
    Returns:
        Two `ParallelCorpus`; the second is None if there is no "validation" split.
    Raises:
        ValueError: no data set has that name, it has no text pairs or no "train" split, TFDS
            cannot be imported, or the data cannot be downloaded.
    """
    tensorflow_datasets = _imported()
    builder, is_exchanged = _builder(tensorflow_datasets, name)
    keys = builder.info.supervised_keys or ()
    texts = [
        isinstance(builder.info.features[key], tensorflow_datasets.features.Text) for key in keys
    ]
    if texts != [True, True]:
        raise InputError(f"Expected a TFDS data set of text pairs. Received: name={name!r}")
    _download(builder, name)
    train, validation = (
        _read_split(builder, split, is_exchanged) for split in ("train", "validation")
    )
    if train is None:
        raise InputError(f"Expected a TFDS data set with a train split. Received: name={name!r}")
    return train, validation


def _download(builder, name):
    """Downloads and prepares what is not there yet.

    Without a network, TFDS would try again for minutes and then fail with a traceback.
    """
    import requests  # as TFDS does
    from tensorflow_datasets.core.download import DownloadError, downloader

    proxies = urllib.request.getproxies()
    retries, downloader.MAX_RETRIES = downloader.MAX_RETRIES, RETRIES
    try:
        if not builder.data_path.exists() and not proxies:
            socket.getaddrinfo(DOWNLOADS, 443)
        builder.download_and_prepare()
    except (socket.gaierror, requests.RequestException, DownloadError) as error:
        names = " and ".join(
            f"{each}_proxy" for each in ("http", "https", "all") if each in proxies
        )
        raise InputError(
            f"Expected a network, to download {name}. Received: {' '.join(str(error).split())}. "
            + (f"Check the proxy in {names}. Or give" if names else "Give")
            + " text that is there instead: data.train (--source-train F --target-train F), and "
            "the same for validation."
        ) from None
    finally:
        downloader.MAX_RETRIES = retries


def _imported():
    """Returns the module of TFDS, which is slow to import, and which few need.

    If its own import fails, TFDS logs why and has no names, as with a protobuf that is too old.
    """
    try:
        import tensorflow_datasets

        tensorflow_datasets.builder  # noqa: B018
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"Expected TensorFlow Datasets that can be imported. Received: {error}. Install what "
            "fits together: pip install --upgrade tensorflow-datasets tensorflow-metadata "
            '"protobuf>=6.32".'
        ) from None
    return tensorflow_datasets


def _builder(tensorflow_datasets, name):
    """Returns `(builder, is_exchanged)`: the TFDS builder, and whether languages are swapped."""
    not_found = (
        tensorflow_datasets.core.DatasetNotFoundError,
        ValueError,
        AssertionError,  # no such version
        TypeError,  # no such argument
    )
    try:
        return tensorflow_datasets.builder(name), False
    except not_found as error:
        reason = " ".join(str(error).split())[:300]
    with contextlib.suppress(*not_found):
        exchanged = re.sub(r"/([a-z]+)(-|_to_)([a-z]+)", r"/\3\2\1", name)
        return tensorflow_datasets.builder(exchanged), True
    raise InputError(
        f"Expected a TFDS data set. Received: name={name!r}: {reason} "
        "https://www.tensorflow.org/datasets/catalog/overview lists the names."
    )


def _read_split(builder, split, is_exchanged):
    """Returns the corpus of a split, or None if the data set has no such split."""
    try:
        dataset = builder.as_dataset(split=split, as_supervised=True)
    except ValueError:
        return None
    if is_exchanged:
        dataset = dataset.map(lambda source, target: (target, source))
    return ParallelCorpus.from_dataset(dataset)
