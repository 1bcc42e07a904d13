"""The pipeline that prepares shards, beside `prepare`."""

import json
import sys

import pytest

pytest.importorskip("apache_beam", reason="it needs the extra: pip install '.[beam]'")

from keras_transformer.config import Config
from keras_transformer.data import preparation
from keras_transformer.pipelines import prepare as pipeline
from keras_transformer.pipelines.__main__ import main
from keras_transformer.training import prepare


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Chunks of 7 pairs, and shards of 12."""
    for module in (pipeline, sys.modules[prepare.__module__]):
        monkeypatch.setattr(module, "CHUNK_PAIRS", 7)
    monkeypatch.setattr(pipeline, "SHARD_PAIRS", 12)


@pytest.fixture
def config(tmp_path, sentence_pairs, tokenizer):
    """The path of a configuration of two corpora."""
    tokenizer.save(tmp_path / "spm")
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{a}\t{b}\n" for a, b in sentence_pairs), encoding="utf-8")
    for side, texts in zip(("en", "de"), zip(*sentence_pairs, strict=True), strict=True):
        (tmp_path / side).write_text("\n".join([*texts[:9], " ", *texts[9:]]), encoding="utf-8")
    both = {"source": str(tmp_path / "en"), "target": str(tmp_path / "de"), "max_pairs": 20}
    data = {"train": [{"tsv": str(table)}, both], "valid": [{"tsv": str(table), "max_pairs": 3}]}
    data["max_length"] = 30
    (model,) = (tmp_path / "spm").glob("*.model")
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"data": data, "tokenizer": {"model": str(model)}}))
    return path


def content_of(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_the_bytes_are_those_of_prepare_also_after_a_failure(config, tmp_path, monkeypatch, capsys):
    silent = {"write": lambda line: None}
    prepare(Config.load(config), tmp_path / "expected", 1, shard_pairs=12, **silent)
    expected = content_of(tmp_path / "expected")
    assert sum(name.startswith("shard-") for name in expected) == 5

    written, real = [], preparation.write_chunk

    def fails(plan, chunk):
        if len(written) == 3:
            raise RuntimeError("the machine is lost")
        written.append(chunk.number)
        real(plan, chunk)

    arguments = ["prepare", str(config), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(pipeline, "write_chunk", fails)
    assert main(arguments) == 1
    assert "the machine is lost" in capsys.readouterr().err
    again = []
    monkeypatch.setattr(
        pipeline, "write_chunk", lambda *pair: (again.append(pair[1].number), real(*pair))
    )
    assert main(arguments) == 0
    assert sorted(written + again) == list(range(8))
    assert content_of(tmp_path / "out") == expected
    assert main(arguments) == 0
    assert "is prepared already" in capsys.readouterr().err


def test_bad_input_is_one_line_and_nothing_is_written(config, tmp_path, capsys):
    def error_of(*changes):
        arguments = ["prepare", str(config), "--output", str(tmp_path / "out")]
        assert main([*arguments, *(["--set", *changes] if changes else [])]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and not (tmp_path / "out").exists()
        return error

    assert "tokenizer.model=None" in error_of("tokenizer.model=null")
    assert "2 and 0 corpora" in error_of("data.valid=[]")
    (tmp_path / "en").write_bytes(b"bad \xff\n")
    assert f"{tmp_path / 'en'}, line 1: invalid start byte" in error_of()
