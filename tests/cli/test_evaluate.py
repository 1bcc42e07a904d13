"""`keras-transformer evaluate`, of a file and of a translator that writes capitals."""

import json
import pathlib
import re

import pytest
import sacrebleu

from keras_transformer import cli
from keras_transformer.config import Config


def test_evaluate_scores_a_file(calls, capsys, write_files):
    files = write_files(hypothesis="a cat sat here .\n", target="a cat sat there .\n")
    assert cli.main(["evaluate", "--hypothesis", files[0], "--target", files[1]]) == 0
    bleu, chrf = capsys.readouterr().out.splitlines()
    assert bleu.startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf.startswith("chrF2|nrefs:1|case:mixed|")
    assert calls == []


def test_other_systems_stand_beside_the_first(
    calls, run_directory, capsys, write_files, fake_translator, error_of
):
    lines = [f"a b c d {word}" for word in "efghijkl"]
    source, target, other = write_files(
        source="\n".join(lines), target="\n".join(lines).upper(), other="\n".join(lines)
    )
    flags = ["--source", source, "--target", target, "--compare", other]
    assert cli.main(["evaluate", run_directory, *flags]) == 0
    names, first, second, *rest = capsys.readouterr().out.splitlines()
    assert names.split() == ["BLEU", "chrF2", "TER"]
    assert first.startswith(f"{run_directory}  ") and "100.00 ± 0.00" in first
    assert second.startswith(f"{other}  ") and "p = 0.0" in second
    assert f"1: {lines[0].upper()}" in rest and any("bs:1000" in line for line in rest)
    flags = ["--hypothesis", other, "--target", target, "--compare", run_directory, "--json"]
    twice = [*flags[:-1], f"{run_directory}/.", "--source", source]
    assert f"{run_directory}/. twice" in error_of(2, ["evaluate", *twice])
    assert cli.main(["evaluate", *flags, "--source", source]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores["BLEU"][run_directory]["score"] == pytest.approx(100)
    assert list(scores["BLEU"]) == [other, run_directory]


def test_other_systems_are_shown_on_a_page(calls, write_files, tmp_path, error_of, capsys):
    target, other = write_files(target="A B\n", other="a b\n")
    page = tmp_path / "page.html"
    flags = ["--hypothesis", other, "--target", target, "--html", str(page)]
    assert "Expected --compare with --html" in error_of(2, ["evaluate", *flags])
    assert cli.main(["evaluate", *flags, "--compare", target]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    capsys.readouterr()
    for read, compared in ((target, target), (str(tmp_path / "other" / "config.yaml"), "other")):
        compared = str(tmp_path / compared) if compared == "other" else compared
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / "config.yaml").write_text("")
        before = pathlib.Path(read).read_text()
        flags[-1] = read
        assert read in error_of(2, ["evaluate", *flags, "--compare", compared])
        assert pathlib.Path(read).read_text() == before


def test_evaluate_prints_json(calls, run_directory, capsys, write_files):
    paths = write_files(
        source="a b c d\ne f g h\n", target="A B C X\nE F G H\n", other="a b c d\nx\n"
    )
    flags = ["--target", *paths[1:], "--lowercase", "--tokenize", "none", "--json"]
    assert cli.main(["evaluate", run_directory, "--source", paths[0], *flags]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["BLEU"]["score"] == pytest.approx(100)
    assert "nrefs:2|case:lc|eff:no|tok:none" in scores["BLEU"]["signature"]
    assert scores["chrF2"]["score"] == pytest.approx(100)


def test_each_tag_has_its_score(calls, run_directory, capsys, write_files):
    lines = [">>A<< b c d e", ">>B<< b c d e", "b c d e", " >>A<< b c d f"]
    target = [line.strip().upper() for line in lines]
    target[1] = "x"
    paths = write_files(source="\n".join(lines), target="\n".join(target))
    evaluate = ["evaluate", run_directory, "--source", paths[0], "--target", paths[1]]
    assert cli.main(evaluate) == 0
    by_tag = capsys.readouterr().out.splitlines()[2:]
    assert [line.rpartition(" ")[0] for line in by_tag] == [
        "BLEU of the 2 lines with >>A<<:",
        "BLEU of the 1 lines with >>B<<:",
        "BLEU of the 1 lines with no tag:",
    ]
    assert cli.main([*evaluate, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["BLEU"]["by_tag"]
    assert scores["no tag"] == pytest.approx(100) == scores[">>A<<"] and scores[">>B<<"] < 10
    assert cli.main([*evaluate, "--compare", paths[1]]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("BLEU by the tag of the source")
    assert lines[place + 2] == f">>B<<   {run_directory} {scores['>>B<<']:.2f}  {paths[1]} 0.00"


def test_evaluate_finds_the_model_behind_the_references(
    calls, run_directory, capsys, write_files, fake_translator
):
    source, target, other = write_files(source="a b\n", target="A B\n", other="A X\n")
    flags = ["--source", source, "--target", target, other, run_directory]
    assert cli.main(["evaluate", *flags, "--tokenize", "none"]) == 0
    assert "nrefs:2" in capsys.readouterr().out
    assert fake_translator.loaded == (run_directory, None)


def test_a_blank_line_is_no_further_reference(write_files, capsys):
    hypotheses = ["the cat sat on the mat", "a dog runs in the park"]
    first = ["the cat sat on a mat", "one dog runs in parks"]
    lines = (hypotheses, first, ["", hypotheses[1]])
    names = ("hypothesis", "first", "second")
    paths = write_files(**{n: "\n".join(each) for n, each in zip(names, lines, strict=True)})
    assert cli.main(["evaluate", "--hypothesis", paths[0], "--target", *paths[1:], "--json"]) == 0
    expected = sacrebleu.corpus_bleu(hypotheses, [first, [None, hypotheses[1]]])
    assert json.loads(capsys.readouterr().out)["BLEU"]["score"] == pytest.approx(expected.score)


def test_several_runs_are_evaluated_as_one(
    calls, run_directories, capsys, write_files, fake_translator
):
    source, target = write_files(source="a b\n", target="A B\n")
    files = ["--source", source, "--target", target]
    for arguments in (
        [*run_directories, *files, "--ensemble", "log_probabilities"],
        ["--ensemble", "log_probabilities", *files, *run_directories],
    ):
        assert cli.main(["evaluate", *arguments, "--tokenize", "none"]) == 0
        assert fake_translator.loaded == (run_directories, None)
        assert fake_translator.ensemble == "log_probabilities"
    capsys.readouterr()
    compared = ["--compare", run_directories[0], "--json", "--ensemble", "probabilities"]
    assert cli.main(["evaluate", *run_directories, *files, *compared]) == 0
    assert fake_translator.loaded == (run_directories[0], None)  # the last one
    assert fake_translator.ensemble is None
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores["BLEU"]) == ["+".join(run_directories), run_directories[0]]


def test_the_bleu_is_that_of_the_training_unless_another_is_asked_for(
    calls, run_directory, capsys, write_files
):
    source, target = write_files(source="a b c d\n", target="A B C D\n")
    config = Config.from_preset("tiny").override(["training.bleu_tokenizer=char"])
    config.save(pathlib.Path(run_directory, "config.yaml"))
    evaluate = ["evaluate", run_directory, "--source", source, "--target", target]
    for flags, name in (([], "char"), (["--tokenize", "intl"], "intl")):
        assert cli.main([*evaluate, *flags]) == 0
        assert f"|tok:{name}|" in capsys.readouterr().out


@pytest.mark.parametrize(
    "sides, message",
    [
        (dict(source="a\n", target="a\nb\n"), "source.txt: 1 lines, .*target.txt: 2 lines"),
        (dict(source="a\n", target=b"\xfe\n"), "target.txt, line 1: "),
        (dict(source="", target=""), "a reference translation on each line.*target.txt, which is"),
    ],
)
def test_evaluate_refuses_files_that_do_not_match(
    calls, run_directory, sides, message, error_of, write_files
):
    source, target = write_files(**sides)
    arguments = ["evaluate", run_directory, "--source", source, "--target", target]
    assert re.search(message, error_of(2, arguments))


def test_a_run_with_an_adapter_is_compared_with_the_run(
    calls, run_directory, capsys, write_files, fake_translator
):
    source, target, adapter = write_files(source="a b\n", target="A B\n", adapter="")
    command = ["evaluate", run_directory, "--adapter", adapter, "--source", source]
    assert cli.main([*command, "--target", target]) == 0
    assert fake_translator.adapter == adapter
    capsys.readouterr()
    assert cli.main([*command, "--target", target, "--compare", run_directory, "--json"]) == 0
    assert fake_translator.adapter is None  # of the last one
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert list(scores["BLEU"]) == [f"{run_directory}+{adapter}", run_directory]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run"], "Received: run without --source"),
        (
            ["--hypothesis", "TARGET", "--beam-size", "3"],
            "Expected a model for --source and the flags",
        ),
        (
            ["--hypothesis", "TARGET", "--checkpoint", "best"],
            "Expected a model for --source and the flags",
        ),
        (
            ["--hypothesis", "TARGET", "--adapter", "TARGET"],
            "Expected a model for --source and the flags",
        ),
        (
            ["--hypothesis", "TARGET", "--ensemble", "probabilities"],
            "Expected a model for --source and the flags",
        ),
        (["--hypothesis", "TARGET", "--source", "TARGET"], "Expected a model for --source"),
        (["--hypothesis", "none"], "Received: none: No such file"),
        (["--hypothesis", "TARGET", "--compare", "TARGET"], "systems that differ. Received: "),
        (["--hypothesis", "TARGET", "--compare", "none"], "Received: none: No such file"),
        (["run", "--source", "TARGET", "--tokenize", "moses"], "Received: tokenize='moses'"),
        (["--hypothesis", "TARGET", "--tokenize", "moses"], "Received: tokenize='moses'"),
    ],
)
def test_evaluate_refuses_flags_that_do_not_fit(calls, arguments, message, error_of, write_files):
    (target,) = write_files(target="a\n")
    arguments = [target if argument == "TARGET" else argument for argument in arguments]
    assert message in error_of(2, ["evaluate", *arguments, "--target", target])
    assert calls == []
