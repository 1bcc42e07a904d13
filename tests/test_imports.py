"""Which subpackage may import what, read from the source and tried in fresh processes."""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer import keras_names, layers
from keras_transformer.training import NoamSchedule, TokenAccuracy, TokenCrossEntropy
from tests import forked

PACKAGE = pathlib.Path(keras_transformer.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
TENSORFLOW = {"tensorflow", "tensorflow_text", "tensorflow_datasets", "tensorflow_serving"}
TENSORFLOW_SUBPACKAGES = ("tokenizers/graph/", "data/", "export/", "serving/")
TENSORFLOW_AT_ONCE = ("tokenizers/graph/", "export/", "serving/")  # `data` imports it in functions
TENSORFLOW_FILES = (
    "backend/tensorflow.py",
    "training/gradient_accumulation.py",
    "training/tensorflow_distribution.py",
    "translation/saved_model_translator.py",
)
SUBPACKAGES = (  # each may import those that stand before it
    *("errors", "types", "special_ids", "keras_names"),
    *("files", "config", "backend", "layers", "decoding", "models"),
    *("checks", "tokenizers", "data", "runs", "translation", "plots", "training"),
    *("convert", "export", "serving", "quickstart"),
    *("cli", "pipelines", "__main__"),
)
PORTABLE_SUBPACKAGES = ("layers/", "models/", "decoding/", "backend/")
OTHER_BACKENDS = {"jax", "torch"}
WITHOUT_TENSORFLOW = {name for name in SUBPACKAGES if f"{name}/" not in TENSORFLOW_AT_ONCE} - {
    *("quickstart", "cli", "pipelines", "__main__"),  # programs, which translate
}


@functools.cache
def parsed(file):
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


def imported(tree):
    """Returns the top-level names of all imports in a syntax tree, also those in functions."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports name the package in full"
            names.add(node.module.partition(".")[0])
    return names


def imported_modules(tree):
    """Returns the modules of the package that a tree imports, also those in functions.

    An attribute of the package, as `keras_transformer.tokenizers.load`, loads its subpackage too.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in MODULES else node.module for name in names)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == PACKAGE.name:
            found.add(f"{PACKAGE.name}.{node.attr}")
    return {MODULES[name] for name in found if name in MODULES} - {"__init__.py"}


def module_of(file):
    """Returns the name under which a file of the package is imported."""
    parts = ["keras_transformer", *file.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def subpackage_of(file):
    return file.partition("/")[0].removesuffix(".py")


def run_python(program, cwd=None, **environment):
    """Runs a program in a fresh process, without the variables that change Keras."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def test_imports_are_found_wherever_they_stand():
    source = "import os.path\ndef f():\n    from tensorflow.python import a\n    import jax as j"
    assert imported(ast.parse(source)) == {"os", "tensorflow", "jax"}
    with pytest.raises(AssertionError, match="line 2: imports name the package in full"):
        imported(ast.parse("import os\nfrom . import layers"))


def test_modules_are_found_wherever_they_are_used():
    source = """
import keras_transformer
from keras_transformer import backend
def f():
    from keras_transformer.data import batches
    return keras_transformer.tokenizers.load, keras_transformer.__version__
"""
    expected = {"backend/__init__.py", "data/batches.py", "tokenizers/__init__.py"}
    assert imported_modules(ast.parse(source)) == expected


def test_a_subpackage_imports_those_before_it_alone():
    height = {name: i for i, name in enumerate(SUBPACKAGES)}
    wrong = [
        f"{file} imports {other}"
        for file in FILES
        if file != "__init__.py"
        for other in imported_modules(parsed(file))
        if height[subpackage_of(other)] > height[subpackage_of(file)]
    ]
    assert wrong == []


def test_no_files_import_each_other_in_a_circle():
    """`__init__.py` of a subpackage gathers its names for its users, not for its own files."""
    graph = {file: imported_modules(parsed(file)) - {file} for file in FILES}
    assert list(graphlib.TopologicalSorter(graph).static_order())  # or it raises CycleError


def test_tensorflow_is_imported_where_it_may_be_alone():
    for file in TENSORFLOW_FILES:
        assert imported(parsed(file)) & TENSORFLOW, f"{file} imports no TensorFlow"
    files = [file for file in FILES if imported(parsed(file)) & TENSORFLOW]
    assert set(files) > set(TENSORFLOW_FILES)
    allowed = TENSORFLOW_SUBPACKAGES, TENSORFLOW_FILES
    assert [file for file in files if not file.startswith(sum(allowed, ()))] == []


def test_what_loads_without_tensorflow_imports_no_subpackage_with_it_at_once():
    """A function may import it, and an attribute of the package loads it when it is used."""
    wrong = []
    for file in FILES:
        if subpackage_of(file) in WITHOUT_TENSORFLOW and not file.startswith(TENSORFLOW_AT_ONCE):
            statements = parsed(file).body
            imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
            others = imported_modules(ast.Module(imports, []))
            others = [other for other in others if other.startswith(TENSORFLOW_AT_ONCE)]
            wrong += [f"{file} imports {other}" for other in others]
    assert wrong == []


def test_portable_subpackages_import_keras_and_numpy_alone():
    known = {"keras", "numpy", "keras_transformer", *sys.stdlib_module_names}
    found = {}
    for file in FILES:
        if file.startswith(PORTABLE_SUBPACKAGES):
            others = imported(parsed(file)) - known
            if file.startswith("backend/"):
                others -= TENSORFLOW | OTHER_BACKENDS
            found[file] = others
    assert {file: others for file, others in found.items() if others} == {}
    assert len(found) > 40


def test_the_subpackages_exist():
    names = {subpackage_of(file) for file in FILES} - {"__init__"}
    assert names == set(SUBPACKAGES)
    named = *PORTABLE_SUBPACKAGES, *TENSORFLOW_SUBPACKAGES
    assert {name.partition("/")[0] for name in named} <= names


def test_importing_the_package_imports_neither_tensorflow_nor_keras():
    program = (
        "import sys, keras_transformer, keras_transformer.config, keras_transformer.cli\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'matplotlib'} & set(sys.modules)))\n"
        # what a command reads before it starts Keras
        "import keras_transformer.translation.markup, keras_transformer.translation.terminology\n"
        "import keras_transformer.data.cleaning\n"
        # what the processes of a preparation read
        "import keras_transformer.data.preparation\n"
        "from keras_transformer.tokenizers import WordPieceTokenizer\n"
        "assert WordPieceTokenizer(b'[UNK]\\na').encode_on_host(['a b'])\n"
        "print(sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    process = run_python(program)
    assert (process.stdout, process.returncode) == ("[]\n[]\n", 0), process.stderr


def test_requirements_without_tensorflow_are_those_of_the_package():
    root = pathlib.Path(__file__).parents[1]
    settings = (root / "setup.cfg").read_text(encoding="utf-8")
    lines = [
        line.partition("#")[0].strip()
        for path in (root / "requirements").iterdir()
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    added = {"", "-r common.txt", "protobuf"}  # TensorFlow requires protobuf
    assert [line for line in lines if line not in added and f"\n    {line}" not in settings] == []
    assert len(lines) > 10


def test_subpackages_and_names_load_when_used():
    assert keras_transformer.Config is keras_transformer.config.Config
    assert "Transformer" in dir(keras_transformer)
    with pytest.raises(AttributeError, match="has no attribute 'Transformers'"):
        keras_transformer.Transformers  # noqa: B018


def test_every_class_that_registers_itself_has_a_placeholder():
    names = []
    for file in FILES:
        for node in ast.walk(parsed(file)):
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any("register_keras_serializable" in decorator for decorator in decorators):
                names.append((subpackage_of(file), node.name))
                assert hasattr(getattr(keras_transformer, subpackage_of(file)), node.name)
    assert sorted(names) == sorted(
        (subpackage, name) for subpackage, names in keras_names.CLASSES.items() for name in names
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory of a Transformer and of a model of layers, with its input and output."""
    directory = tmp_path_factory.mktemp("saved")
    inputs = keras.Input((5, 6))
    attention = layers.MultiHeadAttention(2, attention=layers.LocalAttention(3))
    outputs = attention(layers.EncoderBlock(2, 7)(inputs), causal=True)
    model = keras.Model(inputs, layers.FeedForward(5)(outputs))
    model.compile(keras.optimizers.Adam(NoamSchedule(6)), TokenCrossEntropy(), [TokenAccuracy()])
    model.save(directory / "model.keras")
    sizes = dict(num_layers=1, d_model=6, ff_dim=5, num_heads=2)
    transformer = keras_transformer.Transformer(50, **sizes)
    transformer.build()
    transformer.save(directory / "transformer.keras")
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    np.save(directory / "x.npy", x)
    np.save(directory / "y.npy", keras.ops.convert_to_numpy(model(x)))
    return directory


LOADS = """
model = keras.models.load_model("model.keras")
assert type(model.loss).__name__ == "TokenCrossEntropy"
outputs = keras.ops.convert_to_numpy(model(np.load("x.npy")))
np.testing.assert_allclose(outputs, np.load("y.npy"), rtol=1e-4, atol=1e-5)
loaded = keras.models.load_model("transformer.keras")
assert loaded.count_params() and isinstance(loaded, keras_transformer.Transformer)
print("loaded")
"""
"""A model of layers, with a loss, a metric and a schedule of ours."""
WITHOUT_TENSORFLOW_PROGRAM = f"""
import importlib.util, sys
for name in {sorted(TENSORFLOW)}:
    sys.modules[name] = None  # an import of it fails
import keras_transformer
importlib.util.find_spec("keras")
import keras, numpy as np
{LOADS}
from keras_transformer import Transformer, cli, data, decoding, layers, plots
from keras_transformer.training import TokenCrossEntropy, TokenAccuracy, NoamSchedule
from keras_transformer.training.distribution import started

ids = np.full((4, 5), 7, "int32")
batch = {{"source_ids": ids, "target_ids": ids}}, ids, np.full((4, 5), 1 / 20, "float32")
with started("auto") as devices:
    sizes = dict(num_layers=1, d_model=6, ff_dim=5, num_heads=2, dropout=0.0)
    model = devices.model_class(Transformer)(50, **sizes)
    model.compile("sgd", TokenCrossEntropy())
    batches = devices.dataset(batch for _ in range(3))
    losses = model.fit(batches, epochs=3, steps_per_epoch=1, verbose=0).history["loss"]
    print(devices, losses[2] < losses[0])
for picture in ("schedule", "positions"):
    print(cli.main(["plot", picture, "--output", picture + ".png"]))
"""


def test_what_needs_no_tensorflow_runs_without_it(saved):
    """Models are loaded, trained on two devices of JAX, and drawn.

    Keras is imported after the package, whose names it learns then.
    """
    pytest.importorskip("jax", reason="jax, which stands in for TensorFlow, is not installed")
    devices = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    environment = dict(KERAS_BACKEND="jax", XLA_FLAGS=devices, PYTHONPATH=str(PACKAGE.parent))
    process = run_python(WITHOUT_TENSORFLOW_PROGRAM, cwd=saved, **environment)
    assert process.stdout == "loaded\n2 replicas True\n0\n0\n", process.stderr
    assert {path.stem for path in saved.glob("*.png")} == {"schedule", "positions"}


def test_importing_the_package_after_keras_is_enough_to_load_a_model(saved):
    program = f"import keras, keras_transformer, numpy as np\n{LOADS}"
    process = forked.run(["-c", program], cwd=saved)
    assert process.stdout == "loaded\n", process.stderr
