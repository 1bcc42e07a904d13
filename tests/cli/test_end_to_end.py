"""The commands on real files, with the real library: a few steps of a very small model."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_transformer import cli
from keras_transformer.export import saved_model
from keras_transformer.export.verification import Verification

SMALL = [
    "tokenizer.vocab_size=150",
    "model.num_layers=1",
    "model.d_model=16",
    "model.ff_dim=24",
    "model.num_heads=2",
    "training.batch_tokens=256",
    "training.checkpoint_every=1",
    "data.validation_share=0.1",
    "decoding.max_length=6",
    "decoding.beam_size=2",
]


def text_files(directory, pairs):
    """Writes the two sides of sentence pairs and returns the paths."""
    paths = []
    for name, side in (("text.en", 0), ("text.de", 1)):
        path = directory / name
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
        paths.append(str(path))
    return paths


def train_arguments(source, target, run, *settings):
    files = ["--source-train", source, "--target-train", target]
    return ["train", *files, "--output", str(run), "--set", *SMALL, *settings]


def run_process(*arguments, text=""):
    # a user's environment: libraries that other tests import here set how much TensorFlow says
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer", *arguments],
        env=environment,
        input=text,
        capture_output=True,
        encoding="utf-8",
    )


def everything_in(directory):
    """Returns the content of all files below a directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("end_to_end")


@pytest.fixture(scope="module")
def files(directory, sentence_pairs):
    return text_files(directory, sentence_pairs)


@pytest.fixture(scope="module")
def run(directory, files, first_checks):
    """A run of two steps, whose log nobody reads; to compile them would take longer."""
    path = directory / "run"
    read_end, write_end = os.pipe()
    os.close(read_end)
    tf.config.run_functions_eagerly(True)
    with open(write_end, "w", buffering=1) as nobody_reads, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", nobody_reads)
        assert cli.main([*train_arguments(*files, path), "--max-steps", "2"]) == 0
    tf.config.run_functions_eagerly(False)
    return path


@pytest.fixture(scope="module")
def export(directory, run):
    """An export that is not verified: a test compares its translations with those of the run."""
    path = directory / "models"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "verify", lambda *_: Verification(1, 0))
        assert cli.main(["export", str(run), str(path), "--n-best", "2"]) == 0
    return path


def test_a_run_has_its_files_and_metrics(run):
    names = {path.name for path in run.iterdir()}
    assert names >= {"config.yaml", "tokenizer", "checkpoints", "metrics.jsonl", "tensorboard"}
    assert "finished.json" in names  # although the log could not be written
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records][:2] == [1, 2]
    assert {"val_loss", "val_perplexity", "val_accuracy", "val_bleu"} <= records[0].keys()


def test_a_finished_run_stays_as_it_is(run):
    before = everything_in(run)
    assert cli.main(["train", "--output", str(run)]) == 0
    assert everything_in(run) == before


def test_run_and_export_translate_alike_and_say_nothing_else(run, export, files, directory):
    """The run in a process of its own, and the two best translations of the export."""
    lines = pathlib.Path(files[0]).read_text(encoding="utf-8").splitlines()[:7]
    lines.insert(1, "")
    text = "".join(f"{line}\n" for line in lines)
    process = run_process("translate", str(run), text=text)
    assert process.returncode == 0, process.stderr
    translations = process.stdout.split("\n")
    assert len(translations) == 9 and translations[1] == "" and translations.pop() == ""
    said = "limit of length|: loading the model(, [0-9]+ s so far)?$"
    assert not [line for line in process.stderr.splitlines() if not re.search(said, line)]
    source, output = directory / "eight.txt", directory / "translated.txt"
    source.write_text(text, encoding="utf-8")
    arguments = ["--input", source, "--output", output, "--n-best", 2]
    assert cli.main(["translate", str(export / "1"), *map(str, arguments)]) == 0
    rows = [row.split("\t") for row in output.read_text(encoding="utf-8").splitlines()]
    # the blank line has one translation, and so has a text whose hypotheses are the same text
    found = [[] for _ in translations]
    for number, score, translation in rows:
        found[int(number) - 1].append((float(score), translation))
    assert [texts[0][1] for texts in found] == translations and len(found[1]) == 1
    assert max(map(len, found)) == 2
    for scored in found:
        assert scored == sorted(scored, reverse=True) and len(dict(scored)) == len(scored)


def test_evaluate_scores_a_run(run, files, capsys, eagerly):
    flags = ["--source", files[0], "--target", files[1], "--checkpoint", "last", "--json"]
    assert cli.main(["evaluate", str(run), *flags]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert 0 <= scores["BLEU"]["score"] <= 100 and 0 <= scores["chrF2"]["score"] <= 100


def test_check_reads_the_text_and_the_batches_of_a_run(run, capsys, eagerly):
    only = ["labels are the next tokens", "end token", "tokenizer round trip", "unknown tokens"]
    assert cli.main(["check", str(run), "--json", "--only", *only]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: verdict["status"] for name, verdict in found.items()} == dict.fromkeys(
        only, "held"
    )


def test_plot_draws_a_picture(run, directory, capsys, eagerly):
    path = directory / "attention.png"
    assert cli.main(["plot", str(run), "A dog runs.", "--output", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    chatter = capsys.readouterr().err.splitlines()
    assert not [line for line in chatter if "reached a limit of length" not in line]


@pytest.mark.parametrize(
    "settings, message",
    [
        (["model.positions=rotary", "model.d_model=18", "model.num_heads=6"], "head_dim=3"),
        (["model.num_heads=3"], "d_model=16, num_heads=3"),
        (["model.num_layers=0"], "num_layers=0"),
        (["tokenizer.model=none.model"], "none.model: No such file"),
        (["tokenizer.model=TEXT"], "TEXT: Expected a SentencePiece model"),
        (["tokenizer.model=TEXT.txt", "tokenizer.sampling=0.1"], "model=TEXT.txt, sampling=0.1"),
        (["data.valid=[{source: TEXT, target: ONE}]"], "TEXT: 31 lines, ONE: 1 lines"),
        (["data.valid=[{source: ONE, target: LATIN}]"], "LATIN, line 1"),
        (["data.valid=[{tsv: ONE}]"], "separated by a tab. Received: ONE, line 1: 'a dog'"),
    ],
)
def test_settings_that_cannot_work_are_refused_first(files, tmp_path, settings, message, capsys):
    (tmp_path / "one").write_text("a dog\n")
    (tmp_path / "latin").write_bytes(b"\xe4\n")
    names = {"TEXT": files[0], "ONE": str(tmp_path / "one"), "LATIN": str(tmp_path / "latin")}
    for name, path in names.items():
        settings = [setting.replace(name, path) for setting in settings]
        message = message.replace(name, path)
    assert cli.main(train_arguments(*files, tmp_path / "run", *settings)) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"one", "latin"}


@pytest.mark.parametrize("which", ["training", "validation"])
def test_pairs_that_are_all_too_long_say_whose_they_are(files, tmp_path, which, capsys):
    for side in ("source", "target"):
        (tmp_path / side).write_text(f"a b c d e f g h i j k l m n {side}\n")
    long, short = (str(tmp_path / "source"), str(tmp_path / "target")), files
    train, valid = (long, short) if which == "training" else (short, long)
    settings = [f"data.valid=[{{source: {valid[0]}, target: {valid[1]}}}]"]
    pieces = 30 if which == "training" else 60
    settings += ["data.max_length=12", f"tokenizer.vocab_size={pieces}"]
    assert cli.main(train_arguments(*train, tmp_path / "run", *settings)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "Received: 1 pairs, all longer." in error and error.endswith(f"(the {which} text)")


@pytest.mark.parametrize(
    "source, target, message",
    [
        (b"a\nb\n", b"a\n", "2 lines"),
        (b"\n \n", b"a\nb\n", "Expected at least one pair"),
        (b"a\nb\n", b"a\n\xe4\n", "line 2"),
    ],
)
def test_bad_text_writes_nothing(tmp_path, source, target, message, capsys):
    paths = [tmp_path / "source", tmp_path / "target"]
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content)
    assert cli.main(train_arguments(*map(str, paths), tmp_path / "run")) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 and message in error[0]
    assert sorted(tmp_path.iterdir()) == paths


def test_a_directory_that_is_no_run_is_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert cli.main(["translate", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_directory_that_refuses_a_run(tmp_path, monkeypatch, capsys):
    """By the command; as root, whom no directory refuses, the system is made to."""

    def refuse(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    texts, others = tmp_path / "a.txt", tmp_path / "b.txt"
    texts.write_text("A dog.\nA cat.\n")
    others.write_text("A cat.\nA dog.\n")
    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    arguments = ["--source-train", texts, "--target-train", others, "--output", tmp_path / "run"]
    small = ["model.num_layers=1", "tokenizer.vocab_size=14", "data.validation_share=0.5"]
    assert cli.main(["train", *map(str, arguments), "--set", *small]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("keras-transformer: error: ") and "Permission denied" in last
