"""A prepared corpus on disk: tokenized pairs in shards, and the manifest that lists them.

DIR/manifest.json       written last: a directory without it is not finished
DIR/tokenizer/          one tokenizer, or source and target, as in a run
DIR/shard-00000.npz     the arrays of a `Shard`, and so on, each at most `SHARD_PAIRS` pairs
DIR/validation.json     the text to validate with

The pairs of a shard are a random sample of the corpus, in the order of the text. Nothing here needs
TensorFlow.
"""

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import zipfile

import numpy as np

from keras_transformer.config import DataConfig, TokenizerConfig
from keras_transformer.data.parallel import CorpusSummary, ParallelCorpus, Part
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.files.checksums import checksum
from keras_transformer.files.regular import memory_bytes, read_regular, regular_file
from keras_transformer.types import Self, StrPath

FORMAT = 1
"""Version of the format, which readers compare."""
MANIFEST, VALIDATION, TOKENIZER = "manifest.json", "validation.json", "tokenizer"
SHARD_NAME = re.compile(r"shard-\d{5,}\.npz")
SHARD_PAIRS = 500_000
"""Pairs of a shard, about: a training holds one shard in memory at a time."""
ARRAYS = "source_ids", "source_lengths", "target_ids", "target_lengths", "part_of"


@dataclasses.dataclass(frozen=True)
class Shard:
    """Tokenized pairs.

    Args:
        source, target: `RaggedIds`, each row ended by the end token.
        part_of: int array, the number of the corpus in `data.train` of each pair.
    """

    source: RaggedIds
    target: RaggedIds
    part_of: np.ndarray


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the manifest says about a shard."""

    name: str
    """Of its file."""
    num_bytes: int
    sha256: str
    num_pairs: list[int]
    """Of each corpus in `data.train`."""
    num_target_tokens: list[int]
    """Of each corpus, including end tokens."""


def shard_name(number: int) -> str:
    """Returns the name of the file of a shard, counted from 0."""
    return f"shard-{number:05}.npz"


def shard_bytes(shard: Shard) -> bytes:
    """Returns the content of the file of a shard: the same bytes for the same pairs."""
    arrays = (
        *(shard.source.ids, shard.source.lengths, shard.target.ids, shard.target.lengths),
        shard.part_of,
    )
    smallest = {
        name: array.astype(np.min_scalar_type(array.max(initial=0)))
        for name, array in zip(ARRAYS, arrays, strict=True)
    }
    content = io.BytesIO()
    np.savez(content, **smallest)
    return content.getvalue()


def entry_of(name: str, shard: Shard, content: bytes, num_parts: int) -> Entry:
    """Returns the `Entry` of a shard.

    Args:
        content: from `shard_bytes`.
        num_parts: number of corpora in `data.train`, or 1 without this list.
    """
    num_pairs = np.bincount(shard.part_of, minlength=num_parts)
    num_tokens = np.bincount(shard.part_of, shard.target.lengths, num_parts).astype(int)
    digest = hashlib.sha256(content).hexdigest()
    return Entry(name, len(content), digest, num_pairs.tolist(), num_tokens.tolist())


def write_shard(directory: StrPath, number: int, shard: Shard, num_parts: int) -> Entry:
    """Writes a shard, whole or not at all, and returns its `Entry`; see `entry_of`."""
    name, content = shard_name(number), shard_bytes(shard)
    with replacing(pathlib.Path(directory, name)) as partial:
        partial.write_bytes(content)
    return entry_of(name, shard, content, num_parts)


def parse_shard(content: bytes) -> Shard:
    """Returns the `Shard` of `shard_bytes`.

    Raises:
        ValueError: the content is something else.
    """
    try:
        with np.load(io.BytesIO(content)) as arrays:
            source_ids, source, target_ids, target, part_of = (arrays[name] for name in ARRAYS)
    except (OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"no arrays of a shard ({error})") from None
    if not len(source) == len(target) == len(part_of):
        raise InputError("arrays of different lengths")
    if (int(source.sum(dtype="int64")), int(target.sum(dtype="int64"))) != (
        len(source_ids),
        len(target_ids),
    ):
        raise InputError("lengths that do not fit the ids")
    source, target = (
        RaggedIds(ids.astype("int32"), lengths.astype("int32"))
        for ids, lengths in ((source_ids, source), (target_ids, target))
    )
    return Shard(source, target, part_of.astype("int32"))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a prepared directory holds, and what it was made of."""

    data: DataConfig
    """The settings that named the text."""
    tokenizer: TokenizerConfig
    tokenizers: str
    """Checksum of the tokenizers, see `runs.run.checksum_of_tokenizers`."""
    sizes: list[int]
    """Pairs of each corpus in `data.train` (1 without the list), before long ones and those held
    out are left out: `data.temperature` depends on them."""
    num_blank: int
    """Pairs left out because a side is blank, or has no tokens."""
    num_long: int
    """Pairs left out because a side has more tokens than `data.max_length`."""
    validation: str
    """SHA-256 of `VALIDATION`."""
    shards: list[Entry]
    """Those that have pairs."""

    @property
    def num_pairs(self) -> np.ndarray:
        """Pairs in all shards of each corpus."""
        return np.sum([entry.num_pairs for entry in self.shards], axis=0)

    @property
    def num_target_tokens(self) -> np.ndarray:
        """Target tokens in all shards of each corpus, including end tokens."""
        return np.sum([entry.num_target_tokens for entry in self.shards], axis=0)

    @property
    def summary(self) -> CorpusSummary:
        counts = int(self.num_pairs.sum()), self.num_blank, self.num_long
        return CorpusSummary(*counts, self.data.max_length)

    def checksum(self) -> str:
        """Returns the SHA-256 of the shards and their tokenizers, in hexadecimal digits."""
        names = [self.tokenizers, *(entry.sha256 for entry in self.shards)]
        return hashlib.sha256("\n".join(names).encode()).hexdigest()

    def save(self, directory: StrPath) -> None:
        """Writes the manifest, which makes a directory a prepared one."""
        kept = dataclasses.replace(
            self, shards=[each for each in self.shards if any(each.num_pairs)]
        )
        content = {"format": FORMAT, **dataclasses.asdict(kept)}
        with replacing(pathlib.Path(directory, MANIFEST)) as partial:
            partial.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, directory: StrPath) -> Self:
        """Returns the manifest of a prepared directory.

        Raises:
            InputError: there is none, it is damaged, or a shard is missing or has another size.
        """
        path = pathlib.Path(directory, MANIFEST)
        if not path.is_file():
            raise InputError(
                f"Expected a directory that `keras-transformer prepare` has finished. Received: "
                f"{directory}, which has no {MANIFEST}. Give prepare the same arguments again: it "
                "goes on where it was stopped."
            )
        try:
            content = json.loads(read_regular(directory, MANIFEST, "a manifest", memory_bytes()))
            if content.pop("format") != FORMAT:
                raise InputError("another version of the format")
            entries = [Entry(**entry) for entry in content.pop("shards")]
            data, tokenizer = DataConfig(**content.pop("data")), content.pop("tokenizer")
            manifest = cls(data, TokenizerConfig(**tokenizer), **content, shards=entries)
            manifest._check(directory)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(
                f"Expected the manifest of prepared text. Received: {path}: {error}. Copy the "
                "directory again, or prepare the text again in another one."
            ) from None
        return manifest

    def _check(self, directory):
        """Raises `ValueError` unless the shards are there, each once, with their sizes."""
        if not self.shards:
            raise InputError("no shards")
        names = [entry.name for entry in self.shards]
        if len(set(names)) < len(names) or not all(map(SHARD_NAME.fullmatch, names)):
            raise InputError("names of shards that are not distinct, or not those of shards")
        widths = {len(each) for entry in self.shards for each in (entry.num_pairs, self.sizes)}
        if len(widths) > 1:
            raise InputError("shards of another number of corpora")
        for entry in self.shards:
            try:
                size = os.stat(regular_file(directory, entry.name)).st_size
            except OSError as error:
                raise InputError(f"{entry.name}: {error.strerror}") from None
            if size != entry.num_bytes:
                raise InputError(f"{entry.name} has {size:,} bytes instead of {entry.num_bytes:,}")

    def check_content(self, directory: StrPath) -> None:
        """Raises `InputError` where the checksum of a shard, or of the text, differs."""
        for entry in self.shards:
            if checksum(pathlib.Path(directory, entry.name)) != entry.sha256:
                raise _damaged(directory, entry.name, "its checksum is another")
        read_validation(directory, self.validation)


def read_shard(directory: StrPath, entry: Entry) -> Shard:
    """Returns a shard, whose checksum is compared.

    Raises:
        InputError: it is missing, unreadable or damaged.
    """
    content = read_regular(directory, entry.name, "a shard of prepared text", memory_bytes())
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise _damaged(directory, entry.name, "its checksum is another")
    try:
        return parse_shard(content)
    except ValueError as error:
        raise _damaged(directory, entry.name, str(error)) from None


def _damaged(directory, name, reason):
    """Returns the `InputError` for a file that is not what the manifest says."""
    return InputError(
        f"Expected the file that was prepared. Received: {pathlib.Path(directory, name)}: "
        f"{reason}. Copy it again, or prepare the text again in another directory."
    )


def write_validation(directory: StrPath, corpus: ParallelCorpus) -> str:
    """Writes the text to validate with, and returns its SHA-256."""
    content = json.dumps(
        {
            "source": corpus.source,
            "target": corpus.target,
            "num_blank": corpus.summary.num_blank,
            "parts": [part._asdict() for part in corpus.parts],
            "part_of": np.asarray(corpus.part_of).tolist(),
        },
        ensure_ascii=False,
        indent=0,
    ).encode()
    with replacing(pathlib.Path(directory, VALIDATION)) as partial:
        partial.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def read_validation(directory: StrPath, sha256: str) -> ParallelCorpus:
    """Returns the corpus of `write_validation`.

    Raises:
        InputError: it is missing, or its checksum is another.
    """
    content = read_regular(directory, VALIDATION, "validation text", memory_bytes())
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _damaged(directory, VALIDATION, "its checksum is another")
    stored = json.loads(content)
    return ParallelCorpus(
        stored["source"],
        stored["target"],
        CorpusSummary(len(stored["source"]), stored["num_blank"]),
        [Part(**part) for part in stored["parts"]],
        np.array(stored["part_of"], "int32"),
    )
