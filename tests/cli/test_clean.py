"""`keras-transformer clean`: real cleaning of small files."""

import errno
import gzip
import io
import json
import os
import pathlib
import sys
import types

import numpy as np
import pytest

from keras_transformer import cli
from keras_transformer.cli import clean
from keras_transformer.data.pair_filters import FILTERS, MENDERS


@pytest.fixture
def text(write_files, sentence_pairs):
    """The paths of two files of good pairs, then a tag on one side and a blank side."""
    pairs = [*sentence_pairs, ("The <b>sea</b>", "Das Meer"), ("&quot;No!&quot;", "")]
    source, target = zip(*pairs, strict=True)
    return write_files(source="\n".join(source) + "\n", target="\n".join(target) + "\n")


@pytest.fixture
def command(text, tmp_path):
    """The arguments with which two files are cleaned."""
    kept = ["--output-source", str(tmp_path / "kept.gz"), "--output-target", str(tmp_path / "kept")]
    return ["clean", "--source", text[0], "--target", text[1], *kept]


def test_what_is_kept_and_what_is_not_goes_to_files(command, tmp_path, sentence_pairs, capsys):
    rejected, report = tmp_path / "rejected.tsv", tmp_path / "report.json"
    command += ["--rejected", str(rejected), "--report", str(report)]
    assert cli.main(command) == 0
    source, target = zip(*sentence_pairs, strict=True)
    assert gzip.decompress((tmp_path / "kept.gz").read_bytes()).decode().splitlines() == [*source]
    assert (tmp_path / "kept").read_text(encoding="utf-8").splitlines() == [*target]
    assert rejected.read_text().splitlines() == [
        "tags\tThe <b>sea</b>\tDas Meer",
        'blank\t"No!"\t',
    ]
    found = json.loads(report.read_text())
    assert (found["pairs"], found["kept"]) == (len(source) + 2, len(source))
    assert found["left_out"]["tags"]["examples"] == [["The <b>sea</b>", "Das Meer"]]
    captured = capsys.readouterr()
    assert "left out: tags" in captured.out and captured.err == ""
    names = ("kept.gz", "kept", "rejected.tsv", "report.json")
    before = [(tmp_path / name).read_bytes() for name in names]
    assert cli.main(command) == 0
    assert [(tmp_path / name).read_bytes() for name in names] == before


def test_pairs_in_two_columns_are_cleaned_as_two_files_are(command, text, tmp_path, capsys):
    assert cli.main(command) == 0
    lines = (pathlib.Path(path).read_text(encoding="utf-8").splitlines() for path in text)
    rows = [f"{source}\t{target}\tCC BY" for source, target in zip(*lines, strict=True)]
    pairs, kept = tmp_path / "pairs.tsv", tmp_path / "kept.tsv"
    pairs.write_text("\n".join([*rows, "no tab"]) + "\n", encoding="utf-8")
    assert cli.main(["clean", "--tsv", str(pairs), "--output-tsv", str(kept)]) == 0
    columns = [line.split("\t") for line in kept.read_text(encoding="utf-8").splitlines()]
    with gzip.open(tmp_path / "kept.gz", "rt", encoding="utf-8") as file:
        source = file.read().splitlines()
    target = (tmp_path / "kept").read_text(encoding="utf-8").splitlines()
    assert columns == [list(pair) for pair in zip(source, target, strict=True)]


def test_pairs_come_from_a_pipe_and_go_to_one(tmp_path, monkeypatch, capsysbinary):
    rows = b"A dog runs.\tEin Hund rennt.\tCC BY\nThe sea\t\nA\xc2\xa0cat\tEine Katze\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows)))
    rejected = tmp_path / "rejected.tsv"
    command = ["clean", "--tsv", "-", "--output-tsv", "-", "--rejected", str(rejected)]
    assert cli.main(command) == 0
    captured = capsysbinary.readouterr()
    assert captured.out.decode() == "A dog runs.\tEin Hund rennt.\nA cat\tEine Katze\n"
    assert b"left out: blank" in captured.err and rejected.read_text() == "blank\tThe sea\t\n"
    assert list(tmp_path.iterdir()) == [rejected]


def test_a_dry_run_only_counts(text, tmp_path, capsys):
    there = set(tmp_path.iterdir())
    flags = ["--filters", "blank,long", "--mend", "none", "--max-length", "30", "--dry-run"]
    assert cli.main(["clean", "--source", text[0], "--target", text[1], *flags]) == 0
    table = capsys.readouterr().out
    assert "left out: long" in table and "left out: blank" in table
    assert "mended" not in table and "tags" not in table
    assert set(tmp_path.iterdir()) == there


def test_the_flags_reach_the_filters(command, write_files, capsys, sentence_pairs):
    columns = "\t".join([*sentence_pairs[5], sentence_pairs[6][0]])  # the third is no text
    (held_out,) = write_files(held_out=f"{sentence_pairs[4][1]}\n{columns}\n")
    assert cli.main([*command, "--against", held_out, "--max-ratio", "1.05"]) == 0
    table = capsys.readouterr().out
    assert "left out: leaked                   2" in table and "left out: ratio" in table


def test_mistakes_are_one_line_and_write_nothing(command, text, tmp_path, write_files, error_of):
    short, more = write_files(short="one\n", empty="\n\n\n")
    there = set(tmp_path.iterdir())
    for changed, message in (
        ({"--source": "none.txt"}, "none.txt: No such file"),
        ({"--source": short}, f"{short}: 1 lines, {text[1]}: more."),
        ({"--target": short}, f"{short}: 1 lines, {text[0]}: more."),
        ({"--output-source": text[1]}, f"which is the input {text[1]}"),
        ({"--output-source": str(tmp_path / "kept")}, "Expected outputs that differ."),
        ({"--filters": "tags,length"}, f"some of: {', '.join(FILTERS)}. Received: length."),
        ({"--mend": "space"}, f"some of: {', '.join(MENDERS)}. Received: space. Did you mean spac"),
        ({"--filters": "leaked"}, "Give --against"),
        ({"--filters": "language"}, "Give --languages"),
        ({"--source": more, "--target": more}, "3 pairs, 3 of them left out by blank"),
        ({"--min-score": "1"}, "Expected --score-with with --min-score."),
        ({"--score-with": "no_run"}, "no_run: no such directory"),
        ({"--source": "-"}, "Expected --tsv for pairs from a pipe"),
        ({"--output-target": "-"}, "Give --output-tsv -, or name a file."),
        ({"--rejected": "-"}, "Write /dev/stdout for standard output"),
    ):
        flags = dict(zip(command[1::2], command[2::2], strict=True)) | changed
        assert message in error_of(2, ["clean", *(word for pair in flags.items() for word in pair)])
        assert set(tmp_path.iterdir()) == there
    assert "Expected --output-source and" in error_of(2, command[:-2])
    assert "Expected --output-source and" in error_of(2, [*command, "--dry-run"])


def test_all_files_appear_or_none_where_the_disk_is_full(command, tmp_path, monkeypatch, error_of):
    monkeypatch.setattr("keras_transformer.files.text.open", _full_for("kept.gz"), raising=False)
    there = set(tmp_path.iterdir())
    flags = ["--rejected", str(tmp_path / "rejected"), "--report", str(tmp_path / "report")]
    assert f"No space left on device: '{tmp_path}/kept.gz'" in error_of(1, [*command, *flags])
    assert set(tmp_path.iterdir()) == there


def _full_for(name):
    """Returns an `open` with which a file of that name takes nothing when it is closed."""

    class Full(io.BytesIO):
        def close(self):
            super().close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda path, mode: Full() if str(path).endswith(name) else open(path, mode)


@pytest.mark.parametrize("flag, number, expected", [
    ("--max-ratio", "1", "a number above 1"), ("--max-ratio", "inf", "a number above 1"),
    ("--min-score", "nan", "a number"), ("--min-score", "x", "a number"),
])  # fmt: skip
def test_numbers_are_numbers(command, capsys, flag, number, expected):
    with pytest.raises(SystemExit, match="^2$"):
        cli.main([*command, flag, number])
    assert f"expected {expected}; received: {number}" in capsys.readouterr().err


@pytest.mark.parametrize("has_lexicon", [True, False])
def test_the_run_scores_pairs(has_lexicon, command, calls, run_directory, monkeypatch, capsys):
    """By its lexicon, if it has one."""

    def scores(who):
        def score(sources, targets):
            calls.append(who)
            return np.array([len(text) for text in targets], "float32")

        return score

    rows = types.SimpleNamespace(
        encode=lambda tokenizer, texts: types.SimpleNamespace(texts=lambda: texts)
    )
    run = types.SimpleNamespace(
        lexicon_path=types.SimpleNamespace(exists=lambda: has_lexicon),
        load_config=lambda: None,
        load_tokenizers=lambda config: ("source", "target"),
    )
    lexicon = types.SimpleNamespace(coverage=scores("lexicon"))
    for module, values in (
        ("data.ragged_ids", {"RaggedIds": rows}),
        ("runs.run", {"Run": lambda path: run}),
        ("translation.lexicon", {"load_lexicon": lambda path: lexicon}),
        (
            "translation.loading",
            {"load": lambda path: types.SimpleNamespace(score=scores("model"))},
        ),
    ):
        fake = types.SimpleNamespace(**values)
        monkeypatch.setitem(sys.modules, f"keras_transformer.{module}", fake)
    assert cli.main([*command, "--score-with", run_directory, "--min-score", "9"]) == 0
    assert calls == ["keras", "lexicon" if has_lexicon else "model"]
    assert "left out: score                    1" in capsys.readouterr().out


def test_the_help_names_all_filters_and_menders():
    assert (clean.FILTERS, clean.MENDERS) == (tuple(FILTERS), tuple(MENDERS))
