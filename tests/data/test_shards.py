import dataclasses
import json

import numpy as np
import pytest

from keras_transformer.config import DataConfig, TokenizerConfig
from keras_transformer.data import shards
from keras_transformer.data.parallel import CorpusSummary, ParallelCorpus, Part
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.data.shards import Manifest, Shard, read_shard, write_shard


def shard_of(rows):
    """A shard of (source ids, target ids, number of the corpus)."""
    sides = [
        RaggedIds(
            np.array(sum((row[side] for row in rows), []), "int32"), [len(r[side]) for r in rows]
        )
        for side in (0, 1)
    ]
    return Shard(*sides, np.array([row[2] for row in rows], "int32"))


ROWS = [([5, 3], [70_000, 8, 3], 1), ([3], [9, 3], 0), ([7, 7, 3], [6, 3], 1)]


@pytest.fixture
def manifest(tmp_path):
    """A directory of two shards, of three and of two pairs."""
    corpus = ParallelCorpus(["a", "é"], ["b", "ß"], CorpusSummary(2, 1), [Part("x", 1.0, ">>de<<")])
    made = Manifest(
        data=DataConfig(train=[{"tsv": "a.tsv"}, {"tsv": "b.tsv", "weight": 2.0}]),
        tokenizer=TokenizerConfig(vocab_size=99),
        tokenizers="of two",
        sizes=[3, 4],
        num_blank=1,
        num_long=2,
        validation=shards.write_validation(tmp_path, corpus),
        shards=[write_shard(tmp_path, i, shard_of(ROWS[: 3 - i]), 2) for i in range(2)],
    )
    made.save(tmp_path)
    return made


def test_what_is_written_is_read(tmp_path, manifest):
    assert Manifest.load(tmp_path) == manifest
    shard = read_shard(tmp_path, manifest.shards[0])
    for side, rows in enumerate((shard.source, shard.target)):
        assert [rows.row(i).tolist() for i in range(3)] == [row[side] for row in ROWS]
        assert rows.ids.dtype == rows.lengths.dtype == np.int32
    assert shard.part_of.tolist() == [1, 0, 1]
    corpus = shards.read_validation(tmp_path, manifest.validation)
    assert (corpus.source, corpus.target, corpus.tags) == (["a", "é"], ["b", "ß"], [">>de<<"])
    assert str(manifest.summary) == (
        "5 pairs; left out: 1 with a blank side, 2 longer than 128 tokens"
    )
    assert manifest.num_target_tokens.tolist() == [4, 8]


def test_small_ids_take_few_bytes_and_the_same_pairs_the_same_bytes(tmp_path):
    rows = [([5, 3] * 500, [8, 3] * 500, 0)] * 9
    first, second = (write_shard(tmp_path, i, shard_of(rows), 1) for i in range(2))
    assert first.sha256 == second.sha256 and first.name != second.name
    assert first.num_bytes < 1.1 * 9 * 2000


def test_a_shard_without_pairs_is_not_listed(tmp_path, manifest):
    empty = write_shard(tmp_path, 2, shard_of([]), 2)
    dataclasses.replace(manifest, shards=[*manifest.shards, empty]).save(tmp_path)
    assert Manifest.load(tmp_path) == manifest


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: (path / "manifest.json").unlink(), "has no manifest.json. Give prepare the"),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json: Expecting"),
        (lambda path: edit(path / "manifest.json", format=9), "another version of the format"),
        (lambda path: edit(path / "manifest.json", shards=[]), "no shards"),
        (lambda path: edit(path / "manifest.json", sizes=[1]), "another number of corpora"),
        (lambda path: edit(path / "manifest.json", more=1), "unexpected keyword argument 'more'"),
        (lambda path: (path / "shard-00001.npz").unlink(), "shard-00001.npz: No such file"),
        (lambda path: (path / "shard-00001.npz").write_bytes(b"x"), "has 1 bytes instead of"),
    ],
)
def test_a_directory_that_is_not_whole_is_refused(tmp_path, manifest, change, message):
    change(tmp_path)
    with pytest.raises(ValueError, match=message):
        Manifest.load(tmp_path)


def test_a_shard_that_is_listed_twice_or_lies_elsewhere_is_refused(tmp_path, manifest):
    entry = dataclasses.asdict(manifest.shards[0])
    for other in (entry, {**entry, "name": "../shard-00000.npz"}):
        edit(tmp_path / "manifest.json", shards=[entry, other])
        with pytest.raises(ValueError, match="not distinct, or not those of shards"):
            Manifest.load(tmp_path)


def test_changed_bytes_are_found_when_a_shard_is_read(tmp_path, manifest):
    for name in ("validation.json", "shard-00001.npz"):
        path = tmp_path / name
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        assert Manifest.load(tmp_path) == manifest  # which looks at sizes alone
        with pytest.raises(ValueError, match=f"{name}: its checksum is another. Copy it again"):
            manifest.check_content(tmp_path)
    with pytest.raises(ValueError, match="shard-00001.npz: its checksum is another"):
        read_shard(tmp_path, manifest.shards[1])
    read_shard(tmp_path, manifest.shards[0])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "no arrays of a shard"),
        ({"part_of": [0]}, "arrays of different lengths"),
        ({"target_ids": [3]}, "lengths that do not fit the ids"),
    ],
)
def test_arrays_that_are_no_shard_are_refused(tmp_path, arrays, message):
    right = shards.shard_bytes(shard_of(ROWS))
    path = tmp_path / "other.npz"
    path.write_bytes(right)
    with np.load(path) as read:
        kept = {name: np.array(arrays.get(name, read[name])) for name in read if arrays}
    np.savez(path, **kept)
    with pytest.raises(ValueError, match=message):
        shards.parse_shard(path.read_bytes())
    shards.parse_shard(right)
