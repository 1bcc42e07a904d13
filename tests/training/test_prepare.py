"""Text that is prepared, and trainings on it beside trainings on the text itself."""

import contextlib
import dataclasses
import importlib
import itertools
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from keras_transformer.config import Config, DataConfig
from keras_transformer.data import ParallelCorpus, TranslationBatches, preparation
from keras_transformer.data.prepared import PreparedBatches, PreparedCorpus
from keras_transformer.data.shards import Manifest
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import lock
from keras_transformer.runs.run import Run, load_tokenizers
from keras_transformer.training import prepare, train

prepare_module = importlib.import_module("keras_transformer.training.prepare")
SILENT = {"write": lambda line: None}


@pytest.fixture
def text(tmp_path, sentence_pairs):
    """The settings of two corpora, one of them with blank sides, and of a small vocabulary."""
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{a}\t{b}\n" for a, b in sentence_pairs), encoding="utf-8")
    for side, index in (("source", 1), ("target", 0)):
        lines = [pair[index] for pair in sentence_pairs]
        lines[3 + index] = " "
        if side == "source":
            lines[7] = f">>en<< {lines[7]}"  # has its tag already
        (tmp_path / f"back.{side}").write_text("\n".join(lines), encoding="utf-8")
    back = {side: str(tmp_path / f"back.{side}") for side in ("source", "target")}
    data = {
        "train": [{"tsv": str(table)}, {**back, "tag": ">>en<<", "max_pairs": 20, "weight": 1.5}],
        "validation_share": 0.2,
    }
    return Config().merged({"data": data, "tokenizer": {"vocab_size": 170}})


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of seven pairs, so that there are several."""
    monkeypatch.setattr(prepare_module, "CHUNK_PAIRS", 7)


def content_of(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def batches_in_memory(config, path, **options):
    """The batches of the same text, as a training in memory makes them."""
    train, valid = ParallelCorpus.from_corpora(config.data.train, config.data.temperature).split(
        config.data.validation_share, config.data.validation_limit, config.training.seed
    )
    tokenizers = load_tokenizers(path / "tokenizer", config.tokenizer.shared)
    return TranslationBatches(train, *tokenizers, **options), valid


def as_lists(batches):
    return [
        [np.asarray(x).tolist() for x in (inputs["source_ids"], inputs["target_ids"], *rest)]
        for inputs, *rest in batches
    ]


@pytest.mark.usefixtures("small_chunks")
def test_one_shard_has_the_batches_of_the_text_in_memory(tmp_path, text):
    prepare(text, tmp_path / "out", 1, **SILENT)
    corpus = PreparedCorpus(tmp_path / "out", DataConfig())
    options = dict(batch_tokens=150, seed=3)
    expected, valid = batches_in_memory(text, tmp_path / "out", **options, max_length=128)
    batches = PreparedBatches(corpus, **options)
    assert len(corpus.manifest.shards) == 1 and len(batches) == len(expected) > 5
    assert batches.num_target_tokens == expected.num_target_tokens
    assert batches.summary == expected.summary
    assert as_lists(itertools.islice(batches.arrays(), 30)) == as_lists(
        itertools.islice(expected.arrays(), 30)
    )
    stored = corpus.validation()
    assert stored.checksum() == valid.checksum() and stored.groups() == valid.groups()


@pytest.mark.usefixtures("small_chunks")
def test_several_shards_have_each_pair_once_in_an_epoch(tmp_path, text):
    once = [dataclasses.replace(each, weight=1.0) for each in text.data.train]
    config = text.merged({"data": {"train": once}})
    prepare(config, tmp_path / "out", 1, shard_pairs=12, **SILENT)
    corpus = PreparedCorpus(tmp_path / "out", DataConfig())
    assert len(corpus.manifest.shards) > 2
    batches = PreparedBatches(corpus, batch_tokens=150)
    in_memory, _ = batches_in_memory(config, tmp_path / "out", batch_tokens=150)
    expected = sorted(map(bytes, map(np.ndarray.tobytes, in_memory.rows[0].texts())))
    orders = []
    for epoch in (0, 1):
        found = []
        for inputs, labels, weights in batches.arrays(repeat=False, epoch=epoch):
            assert max(inputs["source_ids"].size, labels.size) <= 150
            assert weights.sum() == pytest.approx(1.0, abs=1e-5)
            found += [row[row != 0][:-1].tobytes() for row in inputs["source_ids"]]
        assert sorted(found) == expected
        orders.append(found)
    assert orders[0] != orders[1]
    number = sum(1 for _ in batches.arrays(repeat=False))
    assert abs(len(batches) - number) <= 3  # an estimate, from the first shard


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("options", [{}, {"static_shapes": 5}])
def test_batches_go_on_at_any_position(tmp_path, text, options):
    prepare(text, tmp_path / "out", 1, shard_pairs=9, **SILENT)

    def new():
        return PreparedBatches(PreparedCorpus(tmp_path / "out", DataConfig()), 150, **options)

    whole = as_lists(itertools.islice(new().arrays(), 60))
    start = (0, 0)
    for taken, more in itertools.pairwise((0, 1, 9, 33, 34)):
        start = new().position_after(start, more - taken)
        epoch, index = start
        rest = as_lists(itertools.islice(new().arrays(epoch=epoch, index=index), 60 - more))
        assert rest == whole[more:]
    assert start[0] > 1


def test_weights_and_temperature_are_those_of_the_training(tmp_path, text):
    prepare(text, tmp_path / "out", 1, shard_pairs=20, **SILENT)
    weighted = [
        dataclasses.replace(each, weight=w) for each, w in zip(text.data.train, (1, 3), strict=True)
    ]
    data = DataConfig(train=weighted, temperature=2.0)
    in_memory = ParallelCorpus.from_corpora(weighted, 2.0)
    corpus = PreparedCorpus(tmp_path / "out", data)
    assert corpus.parts == in_memory.parts and corpus.tags == in_memory.tags
    batches = PreparedBatches(corpus, batch_tokens=200)
    pairs = sum(
        int((inputs["source_ids"] != 0).any(axis=1).sum())
        for epoch in range(4)
        for inputs, *_ in batches.arrays(repeat=False, epoch=epoch)
    )
    expected = corpus.sizes @ [part.weight for part in corpus.parts]
    assert pairs / 4 == pytest.approx(expected, abs=1)


@pytest.mark.usefixtures("small_chunks")
def test_the_bits_do_not_depend_on_processes_and_interruptions(tmp_path, text, monkeypatch):
    prepare(text, tmp_path / "whole", 1, shard_pairs=20, **SILENT)
    expected = content_of(tmp_path / "whole")
    prepare(text, tmp_path / "two", 2, shard_pairs=20, **SILENT)
    assert content_of(tmp_path / "two") == expected

    class Killed(BaseException):
        pass

    written = iter(range(1000))

    def after(number, function):
        def write_some(*arguments):
            if next(written) == number:
                raise Killed
            return function(*arguments)

        return write_some

    for number, name in ((3, "write_chunk"), (5, "write_chunk"), (7, "merge_shard")):
        with monkeypatch.context() as patch:
            patch.setattr(prepare_module, name, after(number, getattr(preparation, name)))
            with pytest.raises(Killed):
                prepare(text, tmp_path / "parts", 1, shard_pairs=20, **SILENT)
        with pytest.raises(ValueError, match="has no manifest.json"):
            Manifest.load(tmp_path / "parts")
    prepare(text, tmp_path / "parts", 1, shard_pairs=20, **SILENT)
    assert content_of(tmp_path / "parts") == expected
    lines = []
    prepare(text, tmp_path / "parts", 1, write=lines.append)
    assert len(lines) == 1 and "is prepared already: 4" in lines[0]


# === Trainings ===


def losses_of(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line.get("loss"), line["val_loss"]) for line in lines]


def test_a_training_begins_as_that_of_the_text_in_memory(config, tmp_path, start_training):
    """With the same batches, the same weights and the same text to validate with."""
    prepare(config, tmp_path / "out", 1, **SILENT)
    data = {"prepared": str(tmp_path / "out")}
    expected = start_training(config, tmp_path / "text", corpora=None)
    begun = start_training(config.merged({"data": data}), tmp_path / "prepared", corpora=None)
    for name in ("batches", "valid_batches"):
        found, others = (getattr(each, name).arrays() for each in (begun, expected))
        assert as_lists(itertools.islice(found, 9)) == as_lists(itertools.islice(others, 9))
    for found, other in zip(begun.model.weights, expected.model.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (found, other)))
    assert begun.bleu.source == expected.bleu.source
    assert begun.bleu.references == expected.bleu.references
    saved = Run(tmp_path / "prepared").load_config()
    assert saved.data.prepared == data["prepared"] and saved.data.train == config.data.train
    with pytest.raises(ValueError, match="settings of the run in .*text: data.prepared=None"):
        train(config.merged({"data": data}), tmp_path / "text", **SILENT)


@pytest.mark.usefixtures("small_chunks")
def test_a_training_goes_on_within_an_epoch(
    config, tmp_path, train_quietly, train_to_last_checkpoint
):
    """It needs no text, and has the tokenizer and the maximum length of the preparation."""
    config = config.override(["training.max_steps=2", "training.checkpoint_every=1"])
    prepare(config, tmp_path / "out", 1, shard_pairs=9, **SILENT)
    for path in tmp_path.glob("*_*"):
        path.unlink()  # the text
    data = {"train": [], "valid": [], "prepared": str(tmp_path / "out"), "max_length": 99}
    other = config.merged({"data": data, "tokenizer": {"vocab_size": 999}})
    run = Run(tmp_path / "run")
    train_to_last_checkpoint(other, run.path)
    assert "data.max_length=128 and tokenizer.* are those of the text" in train_quietly.lines[0]
    assert run.load_config().tokenizer == config.tokenizer
    whole = losses_of(run.path)
    shutil.rmtree(run.checkpoints.path(2))  # as if it had been killed before
    state = run.checkpoints.read_state(run.checkpoints.newest())
    assert (state.step, state.epoch, state.index) == (1, 0, 1)
    train_to_last_checkpoint(other, run.path)
    assert losses_of(run.path) == whole and len(whole) == 2


@pytest.mark.usefixtures("untranslated", "small_chunks")
def test_a_shard_that_was_changed_ends_a_training_with_one_message(config, tmp_path, train_quietly):
    manifest = prepare(config, tmp_path / "out", 1, shard_pairs=9, **SILENT)
    config = config.merged({"data": {"prepared": str(tmp_path / "out")}})
    first = PreparedBatches(PreparedCorpus(tmp_path / "out", config.data), 192)._sections(0)[0]
    for number, entry in enumerate(manifest.shards):
        if number != first:
            path = tmp_path / "out" / entry.name
            path.write_bytes(path.read_bytes().replace(b"NUMPY", b"NUMPX"))
    with pytest.raises(InputError, match="shard-0000.*its checksum is another. Copy it again"):
        train_quietly(config.override(["training.max_steps=40"]), tmp_path / "run")
    assert Run(tmp_path / "run").exists


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": {"sampling": 0.1}}, "no tokenizer.sampling with prepared text.*=0.1"),
        ({"training": {"distill_from": "run"}}, "no training.distill_from with prepared text"),
        ({"training": {"guided_alignment": "lexicon"}}, "no training.guided_alignment with"),
        ({"training": {"batch_tokens": 100}}, "batch_tokens of at least 128, .*=100. Raise it"),
        ({"data": {"prepared": "missing"}}, "has finished. Received: missing, which has no"),
        ({"data": {"train": [{"tsv": "b.tsv"}]}}, "was prepared of: .*source_train, .*: b.tsv"),
        ({"data": {"dataset": "tfds:a", "train": []}}, "Received: tfds:a. Prepare that text in"),
    ],
)
def test_a_training_that_prepared_text_cannot_serve(config, tmp_path, out, changes, message):
    with pytest.raises(InputError, match=message):
        changed = config.merged({"data": {"prepared": str(out)}}).merged(changes)
        train(changed, tmp_path / "run", **SILENT)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def out(config, tmp_path):
    """A directory of prepared text."""
    prepare(config, tmp_path / "out", 1, **SILENT)
    return tmp_path / "out"


def test_text_of_another_tokenizer_is_refused(config, tmp_path, out):
    path = out / "manifest.json"
    path.write_text(path.read_text().replace('"tokenizers": "', '"tokenizers": "0'))
    with pytest.raises(InputError, match="prepared with the tokenizer of the training. Received"):
        train(config.merged({"data": {"prepared": str(out)}}), tmp_path / "new", **SILENT)
    assert not (tmp_path / "new").exists()


# === What is refused ===


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": {"sampling": 0.1}}, "no subword sampling, which tokenizes the text anew"),
        ({"data": {"prepared": "x"}}, "text to prepare. Received: data.prepared=x"),
        ({"data": {"train": []}}, "data.train, or data.dataset. Received: neither"),
        ({"data": {"train": [{"tsv": "-"}]}}, "read more than once. Received: tsv=-"),
        ({"data": {"train": [{"tsv": "missing"}]}}, "readable file. Received: missing"),
        ({"tokenizer": {"vocab_size": 9999}}, "Vocabulary too large"),
    ],
)
def test_what_cannot_be_prepared_writes_nothing(config, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        prepare(config.merged(changes), tmp_path / "new" / "out", 1, **SILENT)
    assert not (tmp_path / "new").exists()


def test_text_without_short_pairs_or_of_one_language_is_refused(config, tmp_path):
    with pytest.raises(InputError, match="pairs of 1 to 2 tokens per side. Received: 31 pairs"):
        prepare(config.override(["data.max_length=2"]), tmp_path / "out", 1, **SILENT)
    same = [{"source": each.source, "target": each.source} for each in config.data.train]
    with pytest.raises(InputError, match="the text of two languages. Received: the same 31 lines"):
        prepare(config.merged({"data": {"train": same}}), tmp_path / "same", 1, **SILENT)


def on_a_full_disk(function):
    """The function, which can write 64 bytes to a file, as to a disk that is full then."""

    def limited(*arguments):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
        try:
            return function(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return limited


@pytest.mark.usefixtures("small_chunks")
def test_a_directory_of_something_else_is_left_as_it_is(config, tmp_path, out, monkeypatch):
    (tmp_path / "own").mkdir()
    for name in (".hidden", "notes"):
        (tmp_path / "own" / name).write_text("mine")
    for name in ("notes", ".hidden"):
        with pytest.raises(InputError, match="Expected a new or empty directory.*, which holds "):
            prepare(config, tmp_path / "own", 1, **SILENT)
        (tmp_path / "own" / name).unlink()  # still there
    before = content_of(out)
    with pytest.raises(InputError, match="was prepared. Received: others. Name another"):
        prepare(config.override(["data.max_length=99"]), out, 1, **SILENT)
    with contextlib.ExitStack() as stack:
        assert lock(out, stack)
        with pytest.raises(InputError, match="no other process prepares"):
            prepare(config, out, 1, **SILENT)
    assert content_of(out) == before

    for function, name in (("write_chunk", "chunk-000000"), ("merge_shard", "shard-00000.npz")):
        with monkeypatch.context() as patch:
            patch.setattr(prepare_module, function, on_a_full_disk(getattr(preparation, function)))
            with pytest.raises(OSError, match=rf"File too large: '.*full/.*{name}'"):
                prepare(config, tmp_path / "full", 1, **SILENT)
        left = content_of(tmp_path / "full").items()
        assert all(before.get(path, content) == content for path, content in left)  # and no parts
        assert not any(name in path for path, _ in left)
    source = pathlib.Path(config.data.train[0].source)
    text = source.read_text()
    source.write_text(text.replace("dog", "cat"))
    with pytest.raises(InputError, match="preparation in .*full was begun. Received: others"):
        prepare(config, tmp_path / "full", 1, **SILENT)
    source.write_text(text)
    prepare(config, tmp_path / "full", 1, **SILENT)
    assert content_of(tmp_path / "full") == before


def test_validation_pairs_in_the_training_text_are_counted(config, tmp_path):
    lines = []
    prepare(config, tmp_path / "out", 1, write=lines.append)
    assert any(line.startswith("overlap     8 of 8 validation pairs") for line in lines)


WITHOUT_TENSORFLOW = """
import sys
sys.modules.update({"tensorflow": None, "keras": None})  # an import of one of them fails
from keras_transformer.config import DataConfig
from keras_transformer.data import PreparedBatches, PreparedCorpus
batches = PreparedBatches(PreparedCorpus(sys.argv[1], DataConfig()), batch_tokens=150)
print(sum(int((labels != 0).sum()) for _, labels, _ in batches.arrays(repeat=False)))
"""


def test_numpy_alone_reads_the_shards(tmp_path, out):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert process.stdout == f"{Manifest.load(out).num_target_tokens.sum()}\n", process.stderr


@pytest.mark.slow
def test_a_preparation_that_is_killed_goes_on_to_the_same_bits(config, tmp_path, sentence_pairs):
    """With its processes, which end too."""
    for index, side in enumerate(("source", "target")):
        lines = [f"{pair[index]} {i}" for i in range(5000) for pair in sentence_pairs]
        (tmp_path / side).write_text("\n".join(lines), encoding="utf-8")
    train = [{side: str(tmp_path / side) for side in ("source", "target")}]
    config = config.merged({"data": {"train": train}})
    prepare(config, tmp_path / "whole", 1, **SILENT)
    config.save(tmp_path / "config.yaml")
    arguments = ["prepare", str(tmp_path / "config.yaml"), "--output", str(tmp_path / "out")]
    program = "import sys; from keras_transformer.training import prepare\n"
    program += "from keras_transformer.config import Config\n"
    program += "if __name__ == '__main__': prepare(Config.load(sys.argv[2]), sys.argv[4], 2)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for number in (1, 5):
        command = [sys.executable, "-c", program, *arguments]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        while len(list((tmp_path / "out").glob(".work/chunk-*"))) < number:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        process.kill()
        process.communicate()
        assert len(children.split()) == 2
        deadline = time.monotonic() + 60
        while any(pathlib.Path(f"/proc/{child}").exists() for child in children.split()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not (tmp_path / "out" / "manifest.json").exists()
    prepare(config, tmp_path / "out", 2, **SILENT)
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")
