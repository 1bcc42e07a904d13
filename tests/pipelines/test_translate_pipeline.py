"""The pipeline that translates files with an export, run by Beam on this machine."""

import gzip
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError
from keras_transformer.pipelines.__main__ import main
from keras_transformer.translation.base_translator import Translation

pytest.importorskip("apache_beam", reason="it needs the extra: pip install '.[beam]'")
pipeline = pytest.importorskip("keras_transformer.pipelines.translate")


class Capitals:
    """Translates into capitals.

    Attributes:
        texts: the texts that it was given, without blank ones.
        fails_at: a text with which it fails.
    """

    decoding = DecodingConfig()
    fails_at = None

    def __init__(self):
        self.texts = []

    def checksum(self):
        return self.sum

    def translate(self, texts):
        if self.fails_at in texts:
            raise RuntimeError("the machine is lost")
        self.texts += filter(None, texts)
        return [[Translation(text.upper(), 0.0, "endless" in text)] for text in texts]


@pytest.fixture
def fake(monkeypatch):
    """The `Capitals` that workers load; a block has 3 lines."""
    fake = Capitals()
    monkeypatch.setattr(pipeline, "load_export", lambda *_: fake)
    monkeypatch.setattr(pipeline, "BLOCK_LINES", 3)
    return fake


@pytest.fixture
def export(tmp_path, fake):
    """The directory of an export, as far as the pipeline looks at it before it is loaded."""
    export = tmp_path / "export" / "1"
    export.mkdir(parents=True)
    (export / "saved_model.pb").touch()
    (export / "SHA256SUMS").write_text("one")
    fake.sum = pipeline.checksum_of_export(export)
    return export.parent


@pytest.fixture
def run(tmp_path, export):
    """A function that runs the pipeline on `in/*`, or with other options; returns its exit code."""
    (tmp_path / "in").mkdir()

    def run(*more):
        options = {"--export": export, "--input": tmp_path / "in" / "*", "--output": out}
        words = [str(word) for pair in options.items() for word in pair]
        return main(["translate", *words, *map(str, more)])

    out = tmp_path / "out"
    return run


def test_lines_are_translated_in_order_and_bad_ones_are_noted(run, fake, tmp_path, capsys):
    lines = [b"\xef\xbb\xbfone", b"two\r", b"", b"bad \xff", b"x" * 70_000, b"endless", b"seven"]
    (tmp_path / "in" / "a.txt").write_bytes(b"\n".join(lines))
    with gzip.open(tmp_path / "in" / "b.gz", "wb") as file:
        file.write("ä\u2028b\n".encode())
    (tmp_path / "in" / "empty").touch()
    assert run() == 0
    out = tmp_path / "out"
    assert (out / "a.txt").read_bytes() == b"ONE\nTWO\n\n\n\n\nSEVEN\n"
    assert gzip.open(out / "b.gz").read() == "Ä B\n".encode()
    assert (out / "empty").read_bytes() == b""
    bad = [json.loads(line) for line in open(out / "bad" / "a.txt.jsonl")]
    assert {each["file"] for each in bad} == {str(tmp_path / "in" / "a.txt")}
    assert [each["line"] for each in bad] == [4, 5, 6]
    assert bad[0]["reason"] == "invalid UTF-8: invalid start byte (byte 0xff)"
    assert bad[1]["reason"] == "too long: 70,000 bytes, more than 65,536"
    assert (bad[2]["reason"], bad[2]["translation"]) == (pipeline.CUT, "ENDLESS")
    assert (out / "bad" / "b.gz.jsonl").read_bytes() == b""
    assert {path.name for path in out.iterdir()} == {"a.txt", "b.gz", "empty", "bad", "shards"}
    error = capsys.readouterr().err
    assert "8 lines of 3 files are translated" in error
    assert "3 of them are empty there" in error


def test_a_pipeline_that_has_failed_goes_on_where_it_was(run, fake, tmp_path, capsys):
    for name in "ab":
        lines = [f"{name}{number}\n" for number in range(8)]
        (tmp_path / "in" / name).write_text("".join(lines))
    fake.fails_at = "b4"
    assert run() == 1
    assert "the machine is lost" in capsys.readouterr().err
    assert not (tmp_path / "out" / "b").exists()
    kept, fake.texts, fake.fails_at = fake.texts, [], None
    assert 0 < len(kept) < 13 and {"b3", "b4", "b5"}.isdisjoint(kept)
    assert run() == 0
    assert sorted(fake.texts + kept) == [f"{name}{i}" for name in "ab" for i in range(8)]
    assert (tmp_path / "out" / "b").read_text() == "".join(f"B{i}\n" for i in range(8))

    fake.texts = []
    (tmp_path / "in" / "c").write_text("new")
    capsys.readouterr()
    assert run() == 0
    assert fake.texts == ["new"]
    assert "goes on: 2 of 3 files are there" in capsys.readouterr().err


def test_a_file_that_has_changed_is_translated_anew_and_says_so(run, fake, tmp_path, capsys):
    for name in "ab":
        (tmp_path / "in" / name).write_text("one\ntwo\n")
    assert run() == 0
    (tmp_path / "in" / "b").write_text("one\nthree\n")
    fake.texts = []
    assert run() == 0
    assert fake.texts == ["one", "three"]
    assert (tmp_path / "out" / "b").read_text() == "ONE\nTHREE\n"
    assert "1 of the files had changed" in capsys.readouterr().err


def test_bad_input_is_one_line_and_nothing_is_written(run, export, tmp_path, capsys):
    here = tmp_path / "in" / "a"
    here.write_text("one")
    other = tmp_path / "other" / "a"
    other.parent.mkdir()
    other.write_text("one")

    def error_of(*arguments):
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "none*, which matches no file" in error_of("--input", tmp_path / "none*")
    assert "Received: a. Translate" in error_of("--input", here, other)
    assert "in/a, which is an input" in error_of("--output", here.parent)
    assert "other/a, of something else" in error_of("--output", other.parent)
    assert "without *, ? and [" in error_of("--output", tmp_path / "out[1]")
    assert "nothing, where there is none" in error_of("--export", tmp_path / "nothing")
    assert other.read_text() == here.read_text() == "one"
    assert {path.name for path in tmp_path.iterdir()} == {"in", "other", "export"}


def test_a_worker_refuses_in_one_line(run, fake, tmp_path, capsys, monkeypatch):
    (tmp_path / "in" / "a").write_text("one")
    broken = tmp_path / "in" / "b.gz"
    broken.write_bytes(gzip.compress(b"one\ntwo\n" * 99)[:-9])
    assert run() == 2
    error = capsys.readouterr().err
    assert f"Expected a whole file, compressed as its name says. Received: {broken}" in error
    broken.unlink()
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    fake.sum = "another"
    assert run() == 2
    error = capsys.readouterr().err
    assert "Expected the same export on each worker." in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()

    def missing(*_):
        raise InputError("Expected an export. Received: nothing.")

    monkeypatch.setattr(pipeline, "load_export", missing)
    assert run() == 2
    assert capsys.readouterr().err.endswith("error: Expected an export. Received: nothing.\n")


def test_the_output_of_another_export_is_refused(run, fake, export, tmp_path, capsys):
    (tmp_path / "in" / "a").write_text("one\n" * 9)
    fake.fails_at = "one"
    (tmp_path / "in" / "b").write_text("two")
    assert run() == 1
    fake.fails_at = None
    (export / "1" / "SHA256SUMS").write_text("two")
    if (tmp_path / "out").exists():
        assert run() == 2
        assert "the export that has begun the output" in capsys.readouterr().err
    (export / "1" / "SHA256SUMS").write_text("one")
    assert run() == 0
    (export / "1" / "SHA256SUMS").write_text("two")
    capsys.readouterr()
    assert run() == 2
    assert "the export that has begun the output" in capsys.readouterr().err
    assert (tmp_path / "out" / "a").read_text() == "ONE\n" * 9


@pytest.mark.slow
def test_two_processes_translate_as_the_export_does(exported, exported_translator, texts, tmp_path):
    """Also when a worker finds that the export is damaged."""
    (tmp_path / "in").mkdir()
    sources = [" ".join(text.split()) for text in texts] * 20
    for i in range(4):
        content = "".join(f"{text}\n" for text in sources[i::4])
        (tmp_path / "in" / f"{i}.txt").write_text(content, encoding="utf-8")
    export = shutil.copytree(exported, tmp_path / "export" / "1")

    def run(out):
        command = [sys.executable, "-m", "keras_transformer.pipelines", "translate"]
        options = ["--export", export.parent, "--input", "in/*", "--output", out]
        beam = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
        return subprocess.run(
            [*command, *options, *beam], cwd=tmp_path, capture_output=True, text=True
        )

    process = run("out")
    assert process.returncode == 0, process.stderr
    assert f"{len(sources):,} lines of 4 files" in process.stderr
    different = list(dict.fromkeys(sources))
    best = {
        t: found[0]
        for t, found in zip(different, exported_translator.translate(different), strict=True)
    }
    for i in range(4):
        translations = (tmp_path / "out" / f"{i}.txt").read_text(encoding="utf-8").split("\n")
        for text, translation in zip(sources[i::4], translations, strict=False):
            assert translation == ("" if best[text].truncated else best[text].text)
    (export / "saved_model.pb").write_bytes(b"damaged")
    process = run("other")
    assert process.returncode == 2, process.stderr
    assert "Expected a whole export." in process.stderr and process.stderr.count("\n") == 1
    assert not pathlib.Path(tmp_path, "other").exists()
