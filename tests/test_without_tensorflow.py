"""Where TensorFlow cannot be imported, the commands run on JAX, and files are the same."""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer.translation.evaluation import bleu

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
BLOCKED = ("tensorflow", "tensorflow_text", "tensorflow_datasets")
PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED}))  # an import of them fails
from keras_transformer import cli
sys.exit(cli.main())
"""
ENGLISH = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
GERMAN = ("eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn")

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="that program trains on JAX: set KERAS_BACKEND=jax"
)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Returns the paths of parallel text: two, three or four numbers in a line."""
    directory = tmp_path_factory.mktemp("text")
    numbers = np.random.default_rng(1)
    lines = [numbers.integers(10, size=2 + i % 3) for i in range(200)]
    paths = directory / "text.en", directory / "text.de"
    for path, words in zip(paths, (ENGLISH, GERMAN), strict=True):
        path.write_text("".join(" ".join(words[i] for i in line) + "\n" for line in lines))
    return paths


@pytest.fixture
def program(monkeypatch):
    """Imports the program, which sets variables for processes that import JAX after it."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    before = dict(os.environ)
    yield importlib.import_module("without_tensorflow")
    os.environ.clear()
    os.environ.update(before)


def run(*arguments, cache, text="", code=0):
    """Runs a command in a process that cannot import TensorFlow, and returns its output.

    If an exit `code` is expected, it returns the errors.

    Args:
        cache: directory for what JAX compiles, unless the tests have one.
    """
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        env={"JAX_COMPILATION_CACHE_DIR": str(cache), **os.environ, "KERAS_BACKEND": "jax"},
    )
    assert process.returncode == code, process.stderr
    return process.stderr if code else process.stdout


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """Returns the paths of a run that knows some numbers, and of a cache of what JAX compiled."""
    source, target = text
    path = tmp_path_factory.mktemp("runs")
    sizes = "model.num_layers=1 model.d_model=32 model.ff_dim=32 tokenizer.vocab_size=60"
    steps = "training.max_steps=180 training.checkpoint_every=90 training.peak_learning_rate=0.01"
    few_shapes = "data.max_length=16 training.batch_tokens=512"
    run(
        *("train", "--source-train", source, "--target-train", target),
        *("--source-valid", source, "--target-valid", target, "--output", path / "run"),
        *("--set", *f"{sizes} {steps} {few_shapes} training.warmup_steps=10".split()),
        cache=path / "cache",
    )
    return path / "run", path / "cache"


def test_a_run_is_trained_and_translates(trained):
    path, cache = trained
    lines = ["three seven", "one", "", "nine nine two five"]
    output = run("translate", path, cache=cache, text="".join(f"{line}\n" for line in lines))
    translations = keras_transformer.load(path)(lines)
    assert output.split("\n") == [*translations, ""]
    assert all(set(found.split()) & set(GERMAN) for found in (translations[0], translations[3]))


def test_a_run_is_evaluated_drawn_and_exported(trained, text, tmp_path):
    (path, cache), (source, target) = trained, text
    score = run(*("evaluate", path, "--source", source, "--target", target, "--json"), cache=cache)
    found = keras_transformer.load(path)(source.read_text().splitlines())
    expected = bleu(found, target.read_text().splitlines()).value
    assert json.loads(score)["BLEU"]["score"] == pytest.approx(expected) and expected > 1
    run("plot", "curves", path, "--output", tmp_path / "c.svg", cache=cache)
    arguments = "export", path, tmp_path / "export"
    error = run(*arguments, cache=cache, code=2)
    assert "Expected Keras on TensorFlow, which a SavedModel needs." in error
    run(*arguments, "--format", "ctranslate2", cache=cache)


def test_what_needs_tensorflow_says_so_in_a_line(text, tmp_path):
    """All in one process, as most of the time is that of importing Keras."""
    (tmp_path / "export" / "1").mkdir(parents=True)
    (tmp_path / "export" / "1" / "saved_model.pb").touch()
    config = tmp_path / "config.yaml"
    files = dict(zip(("source", "target"), map(str, text), strict=True))
    settings = {"tokenizer": {"kind": "wordpiece"}, "data": {"train": [files]}}
    config.write_text(json.dumps(settings))
    new = ("--output", tmp_path / "new")
    commands = [
        ("serve", tmp_path / "export"),
        ("translate", tmp_path / "export"),
        ("evaluate", tmp_path / "export", "--source", text[0], "--target", text[1]),
        ("check", tmp_path / "export"),
        ("train", "--config", config, *new),
        ("train", "--dry-run", "--config", config, *new),
        ("prepare", config, *new),
        ("train", "--dataset", "tfds:ted_hrlr_translate/pt_to_en", *new),
        ("quickstart", *new),
    ]
    program = PROGRAM.replace("cli.main()", "[cli.main(each) for each in {}] != [2] * {}")
    program = program.format([list(map(str, each)) for each in commands], len(commands))
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    lines = [line for line in process.stderr.splitlines() if ": error: " in line]
    assert len(lines) == len(commands), process.stderr
    assert not (tmp_path / "new").exists() and "Traceback" not in process.stderr


def test_dropout_keeps_the_expectation_and_repeats_no_mask(program):
    seeds = keras.random.SeedGenerator(1)
    x = np.ones((512, 64), "float32")
    masks = [np.asarray(program.dropout(x, 0.3, seeds)) for _ in range(3)]
    for mask in masks:
        np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.7], rtol=1e-6)
        assert abs((mask > 0).mean() - 0.7) < 0.01  # 4 standard deviations
    noise = 4 / np.sqrt(x.size)
    assert np.abs(np.corrcoef([mask.ravel() for mask in masks]) - np.eye(3)).max() < noise
    along = [np.corrcoef(masks[0][:, :-1].ravel(), masks[0][:, 1:].ravel())[0, 1]]
    along += [np.corrcoef(masks[0][:-1].ravel(), masks[0][1:].ravel())[0, 1]]
    assert np.abs(along).max() < noise
