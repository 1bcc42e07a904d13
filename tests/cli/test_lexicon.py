"""`keras-transformer lexicon`, and the flag that needs it."""

import sys
import types

import pytest

from keras_transformer import cli


@pytest.fixture
def written(calls, monkeypatch):
    """The list of calls of the library's function."""
    written = []

    def write_lexicon(path, corpus, write):
        write("a report")
        written.append((path, corpus))
        return f"{path}/lexicon.npz"

    corpus = types.SimpleNamespace(from_files=lambda *paths: paths)
    for module, value in (
        ("training", types.SimpleNamespace(write_lexicon=write_lexicon)),
        ("data", types.SimpleNamespace(ParallelCorpus=corpus)),
    ):
        monkeypatch.setitem(sys.modules, f"keras_transformer.{module}", value)
    return written


def test_it_prints_the_path_of_the_lexicon(written, run_directory, capsys):
    assert cli.main(["lexicon", run_directory]) == 0
    assert written == [(run_directory, None)]
    captured = capsys.readouterr()
    assert captured.out == f"{run_directory}/lexicon.npz\n"
    assert captured.err == "keras-transformer: a report\n"


def test_other_text_can_be_named(written, run_directory):
    assert cli.main(["lexicon", run_directory, "--source", "a", "--target", "b"]) == 0
    assert written == [(run_directory, ("a", "b"))]


def test_half_a_parallel_text_is_refused(written, run_directory, error_of):
    error = error_of(2, ["lexicon", run_directory, "--source", "a"])
    assert "Expected --source and --target together. Received: source=a, target=None." in error
    assert written == []


def test_a_directory_without_a_run_is_refused(run_directory, error_of):
    assert "Expected a run directory" in error_of(2, ["lexicon", run_directory])


def test_the_flag_reaches_the_search(calls, run_directory, error_of):
    error = error_of(2, ["export", run_directory, "models", "--shortlist", "201"])
    assert "Expected shortlist to be a whole number from 0 to 200." in error
    assert cli.main(["export", run_directory, "models", "--shortlist", "50"]) == 0
    assert calls[-1][1][0].decoding.shortlist == 50
