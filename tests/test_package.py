"""The wheel and the source archive: what is in them, and that the wheel works in an empty place.

It builds both, and installs the wheel with all it requires in a new virtual environment, which
takes minutes and needs the package registry: `make test-package`.
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import textwrap
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = "keras_transformer"
HIDDEN = ("PYTHON", "KERAS_", "TF_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
"""Without what leads to the checkout, such as PYTHONPATH, or changes what is shown."""
SHORT_TOUR = """
import dataclasses
from keras_transformer.config import DecodingConfig, TokenizerConfig
from keras_transformer.quickstart import tour

training = dataclasses.replace(
    tour.CONFIG.training, batch_tokens=500, warmup_steps=5, max_steps=10, checkpoint_every=5
)
config = dataclasses.replace(
    tour.CONFIG,
    tokenizer=TokenizerConfig(vocab_size=900),
    model={"num_layers": 1, "d_model": 16, "ff_dim": 16, "num_heads": 2},
    training=training,
    decoding=DecodingConfig(beam_size=2, max_length=10),
)
tour.run("tour", config, num_sentences=2000)
"""
pytestmark = pytest.mark.slow


def run(command, **options):
    """Runs a command that knows nothing of the checkout; shows its output if it fails."""
    process = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, **options)
    assert process.returncode == 0, f"{command}\n{process.stdout}\n{process.stderr}"
    return process


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The paths of the wheel and the source archive; the wheel is built from the latter."""
    pytest.importorskip("build", reason="it builds the package: pip install '.[dev]'")
    directory = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT)])
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def python(archives, tmp_path_factory):
    """The interpreter of a new virtual environment with nothing but the wheel and its needs."""
    directory = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(directory)
    python = directory / "bin" / "python"
    run([*pip_of(python), "install", "--quiet", "--no-compile", archives[0]])
    return python


def pip_of(python):
    """The command of our pip for the environment of that interpreter, which has none."""
    return [sys.executable, "-m", "pip", "--python", python]


@pytest.fixture
def run_python(python, tmp_path):
    """A function that runs the new environment's Python far from the checkout."""
    return lambda *arguments: run([python, *arguments], cwd=tmp_path)


def test_the_wheel_has_the_package_and_nothing_else(archives):
    assert archives[0].name.startswith("keras_transformer_translation-")
    with zipfile.ZipFile(archives[0]) as wheel:
        names = set(wheel.namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / PACKAGE).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".pyo")
    }
    in_package = {name for name in names if name.startswith(f"{PACKAGE}/")}
    assert in_package == expected
    assert {f"{PACKAGE}/py.typed", f"{PACKAGE}/config/presets/tiny.yaml"} <= in_package
    others = {name.partition("/")[0] for name in names - in_package}
    assert len(others) == 1 and others.pop().endswith(".dist-info")
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_source_archive_has_what_builds_the_wheel_and_no_tests(archives):
    with tarfile.open(archives[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    expected = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "setup.cfg"}
    assert expected | {"pyproject.toml", f"{PACKAGE}/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "benchmarks"))]


def test_the_package_index_can_render_the_description(archives):
    pytest.importorskip("twine", reason="it checks the description: pip install '.[dev]'")
    process = run([sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)])
    assert process.stdout.count("PASSED") == 2


def test_an_empty_environment_agrees_with_the_requirements(python):
    assert "No broken requirements" in run([*pip_of(python), "check"]).stdout


def test_the_package_is_imported_in_silence(run_python):
    program = f"import {PACKAGE}.config; print({PACKAGE}.__file__)"
    process = run_python("-c", program)
    assert process.stderr == ""
    assert "site-packages" in process.stdout and str(ROOT) not in process.stdout


def test_the_quickstart_runs_far_from_the_checkout(run_python, python, tmp_path):
    assert "--output" in run([python.with_name("keras-transformer"), "quickstart", "-h"]).stdout
    (tmp_path / "short_tour.py").write_text(SHORT_TOUR)
    process = run_python("short_tour.py")
    assert "6. Next steps" in process.stdout
    assert (tmp_path / "tour" / "export" / "1" / "saved_model.pb").is_file()
    assert (tmp_path / "tour" / "attention.png").is_file()


def test_a_type_checker_reads_the_installed_annotations(python, tmp_path):
    pytest.importorskip("mypy", reason="it checks the types: pip install '.[dev]'")
    program = f"""
        from {PACKAGE} import layers

        layers.MultiHeadAttention(num_heads="4")
        """
    (tmp_path / "client.py").write_text(textwrap.dedent(program))
    check = [sys.executable, "-m", "mypy", "--python-executable", str(python), "client.py"]
    process = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT)
    assert '"num_heads" to "MultiHeadAttention"' in process.stdout, process.stdout
    assert "Found 1 error" in process.stdout
