"""Which room may import what, read from the source and tried in fresh processes."""

import ast
import pathlib
import subprocess
import sys

import pytest

import keras_transformer

PACKAGE = pathlib.Path(keras_transformer.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
TENSORFLOW = {"tensorflow", "tensorflow_text", "tensorflow_datasets", "tensorflow_serving"}
TENSORFLOW_ROOMS = ("tokenizers/", "data/", "export/", "serving/")
TENSORFLOW_FILES = (
    "backend/tensorflow.py",
    "training/distribution.py",
    "training/divided_step.py",
)
PORTABLE_ROOMS = ("layers/", "models/", "decoding/", "backend/")
OTHER_BACKENDS = {"jax", "torch"}


def imported(source):
    """Returns the top-level names of all imports in a source text, also those in functions."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports name the package in full"
            names.add(node.module.partition(".")[0])
    return names


def run_python(program, **environment):
    """Runs a program in a fresh process, without the variables that turn Keras round."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )


def test_imports_are_found_wherever_they_stand():
    source = "import os.path\ndef f():\n    from tensorflow.python import a\n    import jax as j"
    assert imported(source) == {"os", "tensorflow", "jax"}


@pytest.mark.parametrize("file", FILES)
def test_tensorflow_is_imported_in_its_rooms_alone(file):
    if not (file.startswith(TENSORFLOW_ROOMS) or file in TENSORFLOW_FILES):
        assert not imported((PACKAGE / file).read_text()) & TENSORFLOW


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(PORTABLE_ROOMS)])
def test_portable_rooms_import_keras_and_numpy_alone(file):
    known = {"keras", "numpy", "keras_transformer", *sys.stdlib_module_names}
    others = imported((PACKAGE / file).read_text()) - known
    if file.startswith("backend/"):
        others -= TENSORFLOW | OTHER_BACKENDS
    assert not others


def test_the_rooms_exist():
    for room in (*PORTABLE_ROOMS, *TENSORFLOW_ROOMS[:3]):
        assert any(file.startswith(room) for file in FILES), room


def test_importing_the_package_imports_neither_tensorflow_nor_keras():
    program = (
        "import sys, keras_transformer, keras_transformer.config, keras_transformer.cli\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    process = run_python(program)
    assert (process.stdout, process.returncode) == ("[]\n", 0), process.stderr


def test_layers_models_decoding_and_training_need_no_tensorflow():
    pytest.importorskip("jax", reason="jax, which stands in for TensorFlow, is not installed")
    program = (
        "import sys\n"
        f"for name in {sorted(TENSORFLOW)}:\n"
        "    sys.modules[name] = None  # an import of it fails\n"
        "import numpy as np\n"
        "from keras_transformer import Transformer, decoding, evaluation, layers, plots\n"
        "from keras_transformer.training import TokenCrossEntropy, TokenAccuracy, PaperSchedule\n"
        "model = Transformer(50, num_layers=1, d_model=6, ff_dim=5, num_heads=2)\n"
        "inputs = {'source_ids': np.array([[7, 5, 3]]), 'target_ids': np.array([[2, 9]])}\n"
        "print(model(inputs).shape)"
    )
    process = run_python(program, KERAS_BACKEND="jax")
    assert process.stdout == "(1, 2, 50)\n", process.stderr


def test_rooms_and_names_load_when_used():
    assert keras_transformer.Config is keras_transformer.config.Config
    assert "Transformer" in dir(keras_transformer)
    with pytest.raises(AttributeError, match="has no attribute 'Transformers'"):
        keras_transformer.Transformers  # noqa: B018
