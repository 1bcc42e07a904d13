"""`keras-transformer tune-decoding` calls the library's function."""

import sys
import time
import types

import pytest

from keras_transformer import cli
from keras_transformer.cli import progress
from keras_transformer.config import DecodingConfig


@pytest.fixture
def tuned(calls, monkeypatch):
    """The list of calls of the library's function."""
    tuned = []

    def tune_decoding(path, corpus, write, **arguments):
        write("a report")
        time.sleep(2 * progress.FIRST_SECONDS if progress.FIRST_SECONDS < 1 else 0)
        tuned.append((path, corpus, arguments))
        found = DecodingConfig(beam_size=5, length_penalty=1.25)
        return types.SimpleNamespace(decoding=found, bleu=40.126, bleu_before=39.5)

    corpus = types.SimpleNamespace(from_files=lambda *paths: paths)
    for module, value in (
        ("training", types.SimpleNamespace(tune_decoding=tune_decoding)),
        ("data", types.SimpleNamespace(ParallelCorpus=corpus)),
    ):
        monkeypatch.setitem(sys.modules, f"keras_transformer.{module}", value)
    return tuned


def test_it_prints_the_search_and_its_score(tuned, run_directory, capsys):
    assert cli.main(["tune-decoding", run_directory]) == 0
    assert tuned == [(run_directory, None, {"lowercase": False})]
    captured = capsys.readouterr()
    assert captured.out == "BLEU 40.13 with beam_size=5, length_penalty=1.25; 39.50 before\n"
    assert captured.err == "keras-transformer: a report\n"


def test_a_long_search_says_what_it_is_doing(tuned, run_directory, capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.05)
    assert cli.main(["tune-decoding", run_directory]) == 0
    assert "keras-transformer: trying searches\n" in capsys.readouterr().err


def test_all_flags_reach_the_function(tuned, run_directory):
    flags = "--source a --target b --beam-sizes 1 6 --length-penalties 0 1.5 --checkpoint last"
    flags += " --lowercase --tokenize none"
    assert cli.main(["tune-decoding", run_directory, *flags.split()]) == 0
    expected = dict(beam_sizes=[1, 6], length_penalties=[0.0, 1.5], checkpoint="last")
    assert tuned == [
        (run_directory, ("a", "b"), {**expected, "lowercase": True, "tokenize": "none"})
    ]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--beam-sizes", "0"], "expected a whole number from 1"),
        (["--beam-sizes", "2147483647"], "from 1 to 1000; received: 2147483647"),
        (["--length-penalties", "1e308"], "expected a number from 0 to 10; received: 1e308"),
        (["--length-penalties", "-1"], "expected a number from 0 to 10; received: -1"),
        (["--length-penalties", "nan"], "expected a number from 0 to 10; received: nan"),
    ],
)
def test_numbers_outside_their_range_are_refused(tuned, run_directory, capsys, flags, message):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["tune-decoding", run_directory, *flags])
    assert stopped.value.code == 2 and message in capsys.readouterr().err
    assert tuned == []


def test_half_a_parallel_text_is_refused(tuned, run_directory, error_of):
    error = error_of(2, ["tune-decoding", run_directory, "--source", "a"])
    assert "Expected --source and --target together. Received: source=a, target=None." in error
    assert tuned == []
