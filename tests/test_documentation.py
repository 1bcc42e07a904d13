"""What README.md and the pages in docs/ show runs as it stands, on a small corpus, for few steps.

`sh` and `text` blocks hold commands: all are parsed, and those of `sh` blocks are run, line by line
and page by page, on files with the names of Multi30k's. `python` blocks are run, in order; a block
that begins with `import keras` starts a new program. A block in another language is not run. The
command runs in forks of a process that has imported TensorFlow.

`shortened` appends FEW_STEPS to each training, and `SHORTER_PROGRAMS` shortens the Python programs.
Steps are compiled on the pages `COMPILES` alone: elsewhere, that would take longer than the steps.
Running takes minutes and is marked slow: `make test-docs` runs it, with a page in each process.
"""

import functools
import gzip
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import keras
import pytest

from keras_transformer.cli import command_parser, train
from keras_transformer.config import GROUPS, Config
from keras_transformer.config.yaml import parse_yaml
from tests import forked

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
]
SITE = "https://keras-transformer.github.io/keras_transformer/"
SPLITS = ("train", "val", "test_2016_flickr")
FEW_STEPS = ["training.checkpoint_every=2", "training.batch_tokens=300", "training.max_steps=2"]
SMALL_MODEL = ["tokenizer.vocab_size=200", "model.num_layers=1"]
EAGERLY = """
import keras

def fit_eagerly(model, *args, fit=keras.Model.fit, **kwargs):
    model.jit_compile, model.run_eagerly = False, True
    return fit(model, *args, **kwargs)

keras.Model.fit = fit_eagerly
"""
COMMAND = "from keras_transformer import cli; raise SystemExit(cli.main())"
# regular expressions; each must occur on some page
SHORTER_PROGRAMS = {
    r"\bepochs=\d+": "epochs=1",
    r"\bvocab_size=10_000": "vocab_size=200",
    r"max_new_tokens=500": "max_new_tokens=5",
    r"num_train=20_000, num_held_out=500": "num_train=128, num_held_out=100",
    r'"tiny", tokenizer\.vocab_size\)': '"tiny", tokenizer.vocab_size, num_layers=1)',
    r"phrase_corpus\(4000\)": "phrase_corpus(600)",
    r"load_digits\(return_X_y=True\)": "[each[:200] for each in load_digits(return_X_y=True)]",
    r"max_steps=20\b": "max_steps=2",
    r"checkpoint_every=10\b": "checkpoint_every=2",
    r"\bdict\(num_layers=4": "dict(num_layers=1",
    r"\.override\(\s*\[": f".override([*{FEW_STEPS + SMALL_MODEL}, ",
}
SAME_COMMANDS = "README.md", "docs/getting-started.md"
"""Pages that train and export the same run: one directory serves both."""
COMPILES = *SAME_COMMANDS, "docs/guides/model-fit.md", "docs/guides/a-keras-classifier.md"
ONE_COMMAND = re.compile(r'(?:echo "([^"$]*)" \| )?keras-transformer ([^|>;&]*)')
FILE = re.compile(r"# (\w+\.(?:yaml|py))\n")  # a block that commands of its page read
INSTALLS_OR_DOWNLOADS = re.compile(r"(pip|python3? -m venv|\.|git|cd|curl|make) ")


def blocks(page, *languages):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def lines(page, *languages):
    """The lines of the blocks of these languages; a backslash joins a line with the next one."""
    text = "".join(blocks(page, *languages)).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines()]


def pages_with(*languages):
    return [page for page in PAGES if blocks(page, *languages)]


README_TRAINS = next(line for line in lines("README.md", "sh") if "transformer train " in line)


def pages_of_commands():
    """Those with the same commands are one case, so that one process runs them once."""
    pages = pages_with("sh")
    others = [[page] for page in pages if page not in SAME_COMMANDS]
    return [pytest.param(each, id=each[0]) for each in (list(SAME_COMMANDS), *others)]


def program_arguments(line):
    """The arguments of each call of the program in a line, without what follows in the shell."""
    for _, arguments in re.findall(r"(^|[ /])keras-transformer ([^|>;&]*)", line):
        yield shlex.split(arguments, comments=True)


@pytest.mark.parametrize("page", pages_with("sh", "text"))
def test_the_commands_are_ones_that_the_program_has(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no run stands, whose settings would be read
    parser = command_parser()
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in lines(page, "sh", "text"):
        for arguments in program_arguments(line):
            parsed = parser.parse_args(arguments)
            if parsed.run is train.run and parsed.config is None:
                train.config_of(parsed)
        assert set(re.findall(r"^make ([\w-]+)", line)) <= set(targets), line
        for script in re.findall(r"\b((?:benchmarks|export)/\w+\.(?:py|sh))", line):
            assert (ROOT / script).exists(), line


def test_commands_and_their_mistakes_are_found():
    assert sum(bool(list(program_arguments(line))) for line in lines("README.md", "sh")) > 5
    for line in ("a | keras-transformer fly | b", "X=1 .venv/bin/keras-transformer train --fly"):
        ((*arguments,),) = program_arguments(line)
        with pytest.raises(SystemExit):
            command_parser().parse_args(arguments)


@pytest.mark.parametrize("page", PAGES)
def test_links_with_the_address_of_the_site_lead_to_its_pages(page):
    """Those of README.md, for example; MkDocs checks the links between pages."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in re.findall(rf"{SITE}([^)\s]*)", text):
        name = name.strip("/") or "index"
        pages = ROOT / "docs" / f"{name}.md", ROOT / "docs" / name / "index.md"
        generated = name in ("reference/commands", "reference/settings")
        assert generated or any(page.exists() for page in pages), name


def test_pictures_are_small():
    for picture in (ROOT / "docs/pictures").glob("*.[ps][nv]g"):
        assert picture.stat().st_size < 200_000, picture.name


def test_the_file_tree_names_what_is_there():
    (tree,) = (block for block in blocks("README.md", "text") if "translation/" in block)
    of_package = "".join(re.findall(r"^  (\S*/(?: \S+/)*) ", tree, re.MULTILINE))
    packages = (ROOT / "keras_transformer").glob("*/__init__.py")
    assert set(re.findall(r"\w+", of_package)) == {path.parent.name for path in packages}
    of_root = "".join(re.findall(r"^(\S*/(?: \S+/)*)", tree, re.MULTILINE))
    assert [name for name in re.findall(r"\w+", of_root) if not (ROOT / name).is_dir()] == []


def test_the_settings_in_yaml_blocks_are_known():
    for page in pages_with("yaml"):
        for block in blocks(page, "yaml"):
            values = parse_yaml(block)
            if isinstance(values, dict) and set(values) & set(GROUPS):
                Config().merged(values)


@pytest.fixture(scope="module")
def multi30k(tmp_path_factory, sentence_pairs):
    """A function that returns a directory for a page: the same for those with the same commands.

    It has files of Multi30k's names, and one of Tiny Shakespeare's. The German text stands in for
    the French.
    """

    @functools.cache
    def directory(pages):
        path = tmp_path_factory.mktemp("page")
        english, german = zip(*sentence_pairs, strict=True)
        text = "\n".join(text for pair in sentence_pairs for text in pair)
        (path / "input.txt").write_text(text, encoding="utf-8")
        for split in SPLITS:
            for language, sentences in (("en", english), ("de", german), ("fr", german)):
                with gzip.open(path / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                    file.writelines(f"{sentence}\n" for sentence in sentences)
        return path

    return lambda page: directory(SAME_COMMANDS if page in SAME_COMMANDS else page)


def shortened(line):
    """A command line that does the same for a few steps."""
    if "keras-transformer train " in line:
        settings = FEW_STEPS if "--init-from" in line else FEW_STEPS + SMALL_MODEL
        if "distill_from" in line or "--prepared" in line:  # which have a tokenizer
            settings = [setting for setting in settings if not setting.startswith("tokenizer")]
        line = re.sub(r"--max-(minutes|steps) \S+", "", line)
        few = f" --set {' '.join(settings)} "
        line = re.sub(r"keras-transformer train [^|>;&]*", lambda call: call[0] + few, line)
    if "keras-transformer prepare " in line:
        line = f"{line} --set {SMALL_MODEL[0]}"
    return " ".join(line.split())  # so that pages with the same command have the same line


@functools.cache
def run_command(line, directory, compiles):
    """Runs a line of a page in a directory, once; returns its output.

    Without `compiles`, the steps of a training are not compiled.
    """
    one = ONE_COMMAND.fullmatch(line)
    if one:
        arguments = shlex.split(one[2], comments=True)
        program = ["-m", "keras_transformer", *arguments]
        if arguments == ["quickstart"]:  # `make test-package` runs it
            run_command(shortened(README_TRAINS), directory, compiles)
            shutil.copytree(directory / "runs/multi30k", directory / "quickstart/run")
            return ""
        if arguments[0] == "train" and not compiles:
            program = ["-c", EAGERLY + COMMAND, *arguments]
        done = forked.run(program, input=f"{one[1]}\n" if one[1] else "", cwd=directory)
    else:
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env={**os.environ, "PATH": path},
            cwd=directory,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("pages", pages_of_commands())
def test_the_commands_run(pages, multi30k):
    for page in pages:
        run_commands(page, multi30k(page))


def run_commands(page, directory):
    for block in blocks(page, "yaml", "python"):
        if name := FILE.match(block):
            (directory / name[1]).write_text(block, encoding="utf-8")
    commands = [line for line in lines(page, "sh") if line]
    commands = [line for line in commands if not INSTALLS_OR_DOWNLOADS.match(line)]
    compiles = page in COMPILES
    outputs = {line: run_command(shortened(line), directory, compiles) for line in commands}
    if page == "README.md":
        translations = [output for line, output in outputs.items() if "translate" in line]
        assert len(translations) > 1 and len(set(translations)) == 1  # the run's, the export's
        assert any("BLEU" in output and "chrF2" in output for output in outputs.values())
        assert (directory / "attention.png").stat().st_size > 10_000
        assert (directory / "export/models/translator/1/saved_model.pb").is_file()


def programs(page):
    """The Python programs of a page, each a list of blocks."""
    found = []
    for block in blocks(page, "python"):
        if FILE.match(block):  # for the commands
            continue
        if not found or block.startswith("import keras"):
            found.append([])
        found[-1].append(block)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_the_programs_run(page, multi30k, monkeypatch):
    monkeypatch.chdir(multi30k(f"programs of {page}"))
    if page not in COMPILES:
        monkeypatch.setattr(keras.Model, "fit", keras.Model.fit)  # is put back
        exec(EAGERLY, {})
    policy = keras.config.dtype_policy()
    try:
        for program in programs(page):
            text = "\n".join(program)
            if "sklearn" in text:
                pytest.importorskip("sklearn", reason="scikit-learn is missing")
            for long, short in SHORTER_PROGRAMS.items():
                text = re.sub(long, short, text)
            exec(compile(text, page, "exec"), {"__name__": "documentation"})
    finally:
        keras.config.set_dtype_policy(policy)
        keras.backend.clear_session()


def test_what_shortens_the_programs_occurs_in_them():
    text = "\n".join(block for page in PAGES for block in blocks(page, "python"))
    assert [long for long in SHORTER_PROGRAMS if not re.search(long, text)] == []
