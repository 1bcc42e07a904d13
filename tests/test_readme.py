"""The README's commands and programs run as they stand, on little text and for few steps.

Running them takes minutes and is marked slow; in the default suite, `cli/` tries each command.
"""

import gzip
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from keras_transformer.cli import command_parser, train
from keras_transformer.config import Config

README = pathlib.Path(__file__).parents[1] / "README.md"
SPLITS = ("train", "val", "test_2016_flickr")
FEW_STEPS = (
    "--set tokenizer.vocab_size=200 --set training.checkpoint_every=2 --max-steps 4 "
    "--set training.batch_tokens=300 --set model.num_layers=1"
)


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def command_lines(*languages):
    """The lines of the blocks of these languages that call the program."""
    text = "\n".join(block for language in languages for block in blocks(language))
    return [line for line in text.splitlines() if "keras-transformer " in line]


@pytest.fixture
def multi30k(tmp_path, sentence_pairs):
    """A directory with files of Multi30k's names, and one of Tiny Shakespeare's."""
    text = "\n".join(text for pair in sentence_pairs for text in pair)
    (tmp_path / "input.txt").write_text(text, encoding="utf-8")
    for split in SPLITS:
        for language, sentences in zip(
            ("en", "de"), zip(*sentence_pairs, strict=True), strict=True
        ):
            with gzip.open(tmp_path / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{sentence}\n" for sentence in sentences)
    return tmp_path


def test_the_commands_are_ones_that_the_program_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no run stands, whose settings would be read
    lines = command_lines("sh", "text")
    assert len(lines) > 10
    parser = command_parser()
    for line in lines:
        _, _, arguments = line.partition("keras-transformer ")
        parsed = parser.parse_args(shlex.split(arguments, comments=True))
        if parsed.run is train.run:
            train._config(parsed, Config)


@pytest.mark.slow
def test_the_commands(multi30k):
    commands = command_lines("sh")
    assert len(commands) == 6
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    outputs = {}
    for command in commands:
        shortened = command.replace("--max-minutes 60", FEW_STEPS)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", shortened],
            cwd=multi30k,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{shortened}\n{done.stderr}"
        outputs[command] = done.stdout
    translations = [output for command, output in outputs.items() if "translate" in command]
    assert translations[0] == translations[1]  # the run's and the export's
    assert any("BLEU" in output and "chrF2" in output for output in outputs.values())
    assert (multi30k / "attention.png").stat().st_size > 10_000
    assert (multi30k / "export/models/translator/1/saved_model.pb").is_file()


@pytest.mark.slow
def test_the_programs(multi30k, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn, of the extra `examples`, is missing")
    monkeypatch.chdir(multi30k)
    # those that begin with `import keras` stand alone; the others go on from the one before
    programs = re.split(r"^(?=import keras)", "\n".join(blocks("python")), flags=re.MULTILINE)[1:]
    assert len(programs) == 7
    for long, short in {
        "vocab_size=10_000": "vocab_size=200",
        "epochs=30": "epochs=1",
        '"tiny", tokenizer.vocab_size': '"tiny", tokenizer.vocab_size, num_layers=1',
        "epochs=12": "epochs=1",
        "max_new_tokens=500": "max_new_tokens=5",
        "epochs=150": "epochs=1",
        "num_train=20_000, num_held_out=500": "num_train=128, num_held_out=100",
        "epochs=20": "epochs=1",
        ".override(\n    [": ".override(\n    [*FEW_STEPS, ",
    }.items():
        assert any(long in program for program in programs)
        programs = [program.replace(long, short) for program in programs]
    settings = re.findall(r"--set (\S+)", FEW_STEPS)
    translators = []
    for program in programs:
        names = {"FEW_STEPS": [*settings, "training.max_steps=4"]}
        exec(compile(program, str(README), "exec"), names)
        translators += [names["translator"]] if "translator" in names else []
    for translator in translators:
        (translations,) = translator.translate(["A dog runs."], n_best=3)
        assert len(translations) == 3
    assert (multi30k / "export/models/python/1/saved_model.pb").is_file()


def test_the_file_tree_names_what_is_there():
    (tree,) = (block for block in blocks("text") if "translator.py" in block)
    named = re.findall(r"^ *([\w./]+) ", tree, re.MULTILINE)
    package = README.parent / "keras_transformer"
    missing = [
        name
        for name in named
        if not any(
            (root / name).exists()
            for root in (README.parent, package, package / "layers", package / "quickstart")
        )
    ]
    assert not missing
    files = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert files - set(named) - {"console.py"} == set()
