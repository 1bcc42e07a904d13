"""Which room may import what, read from the source and tried in fresh processes."""

import ast
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

PACKAGE = pathlib.Path(keras_transformer.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
TENSORFLOW = {"tensorflow", "tensorflow_text", "tensorflow_datasets", "tensorflow_serving"}
TENSORFLOW_ROOMS = ("tokenizers/", "data/", "export/", "serving/")
TENSORFLOW_FILES = (
    "backend/tensorflow.py",
    "training/distribution/slurm.py",
    "training/distribution/tensorflow.py",
    "training/divided_step.py",
    "translation/saved_model_translator.py",
)
ROOMS = (  # each may import those that stand before it
    *("errors", "types", "special_ids", "keras_names"),
    *("files", "config", "backend", "layers", "decoding", "models"),
    *("tokenizers", "data", "runs", "translation", "plots", "training"),
    *("convert", "export", "serving", "quickstart"),
    *("cli", "__main__"),
)
PORTABLE_ROOMS = ("layers/", "models/", "decoding/", "backend/")
OTHER_BACKENDS = {"jax", "torch"}
WITHOUT_TENSORFLOW = {room for room in ROOMS if f"{room}/" not in TENSORFLOW_ROOMS} - {
    *("quickstart", "cli", "__main__"),  # programs, which translate
}


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


def imported_modules(source):
    """Returns the modules of the package that a source text imports, also those in functions.

    An attribute of the package, as `keras_transformer.tokenizers.load`, loads its room too.
    """
    modules = {module_of(file): file for file in FILES}
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "keras_transformer":
            found.add(ast.unparse(node))
    return {modules[name] for name in found if name in modules} - {"__init__.py"}


def module_of(file):
    """Returns the name under which a file of the package is imported."""
    parts = ["keras_transformer", *file.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(file):
    return file.partition("/")[0].removesuffix(".py")


def run_python(program, **environment):
    """Runs a program in a fresh process, without the variables that turn Keras round."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )


def test_imports_are_found_wherever_they_stand():
    source = "import os.path\ndef f():\n    from tensorflow.python import a\n    import jax as j"
    assert imported(source) == {"os", "tensorflow", "jax"}


def test_modules_are_found_wherever_they_are_used():
    source = """
import keras_transformer
from keras_transformer import backend
def f():
    from keras_transformer.data import batches
    return keras_transformer.tokenizers.load, keras_transformer.__version__
"""
    expected = {"backend/__init__.py", "data/batches.py", "tokenizers/__init__.py"}
    assert imported_modules(source) == expected


@pytest.mark.parametrize("file", [file for file in FILES if room_of(file) != "__init__"])
def test_a_room_imports_those_below_it_alone(file):
    height = {room: i for i, room in enumerate(ROOMS)}
    for other in imported_modules((PACKAGE / file).read_text()):
        assert height[room_of(other)] <= height[room_of(file)], f"{file} imports {other}"


def test_no_files_import_each_other_in_a_circle():
    """`__init__.py` of a room gathers its names for users of the room, not for its own files."""
    graph = {file: imported_modules((PACKAGE / file).read_text()) - {file} for file in FILES}
    assert list(graphlib.TopologicalSorter(graph).static_order())  # or it raises CycleError


@pytest.mark.parametrize("file", FILES)
def test_tensorflow_is_imported_in_its_rooms_alone(file):
    if not (file.startswith(TENSORFLOW_ROOMS) or file in TENSORFLOW_FILES):
        assert not imported((PACKAGE / file).read_text()) & TENSORFLOW


@pytest.mark.parametrize("file", [file for file in FILES if room_of(file) in WITHOUT_TENSORFLOW])
def test_rooms_that_load_without_tensorflow_import_no_room_with_it_at_once(file):
    """A function may import it, and an attribute of the package loads it when it is used."""
    statements = ast.parse((PACKAGE / file).read_text()).body
    imports = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    source = "\n".join(map(ast.unparse, imports))
    assert [name for name in imported_modules(source) if name.startswith(TENSORFLOW_ROOMS)] == []


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
        "from keras_transformer import Transformer, decoding, layers, plots\n"
        "from keras_transformer.training import TokenCrossEntropy, TokenAccuracy, NoamSchedule\n"
        "model = Transformer(50, num_layers=1, d_model=6, ff_dim=5, num_heads=2)\n"
        "inputs = {'source_ids': np.array([[7, 5, 3]]), 'target_ids': np.array([[2, 9]])}\n"
        "print(model(inputs).shape)"
    )
    process = run_python(program, KERAS_BACKEND="jax")
    assert process.stdout == "(1, 2, 50)\n", process.stderr


def test_several_jax_devices_train_without_tensorflow():
    pytest.importorskip("jax", reason="jax is not installed")
    program = (
        "import sys\n"
        f"for name in {sorted(TENSORFLOW)}:\n"
        "    sys.modules[name] = None  # an import of it fails\n"
        "import numpy as np\n"
        "from keras_transformer import Transformer\n"
        "from keras_transformer.training import TokenCrossEntropy\n"
        "from keras_transformer.training.distribution import started\n"
        "ids = np.full((4, 5), 7, 'int32')\n"
        "batch = {'source_ids': ids, 'target_ids': ids}, ids, np.full((4, 5), 1 / 20, 'float32')\n"
        "with started('auto') as devices:\n"
        "    sizes = dict(num_layers=1, d_model=6, ff_dim=5, num_heads=2, dropout=0.0)\n"
        "    model = devices.model_class(Transformer)(50, **sizes)\n"
        "    model.compile('sgd', TokenCrossEntropy())\n"
        "    batches = devices.dataset(batch for _ in range(3))\n"
        "    losses = model.fit(batches, epochs=3, steps_per_epoch=1, verbose=0).history['loss']\n"
        "    print(devices, losses[2] < losses[0])"
    )
    flags = "--xla_force_host_platform_device_count=2"
    process = run_python(program, KERAS_BACKEND="jax", XLA_FLAGS=flags)
    assert process.stdout == "2 replicas True\n", process.stderr


def test_rooms_and_names_load_when_used():
    assert keras_transformer.Config is keras_transformer.config.Config
    assert "Transformer" in dir(keras_transformer)
    with pytest.raises(AttributeError, match="has no attribute 'Transformers'"):
        keras_transformer.Transformers  # noqa: B018


def test_every_class_that_registers_itself_has_a_placeholder():
    names = []
    for file in FILES:
        for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any("register_keras_serializable" in decorator for decorator in decorators):
                room = file.partition("/")[0]
                names.append((room, node.name))
                assert hasattr(getattr(keras_transformer, room), node.name)
    assert sorted(names) == sorted(
        (room, name) for room, names in keras_names.CLASSES.items() for name in names
    )


@pytest.mark.parametrize(
    "imports",
    [
        "import keras_transformer, importlib.util; importlib.util.find_spec('keras'); import keras",
        "import keras, keras_transformer",
    ],
)
def test_importing_the_package_is_enough_to_load_a_model(imports, tmp_path):
    """In a fresh process: a model of layers, with a loss, a metric and a schedule of ours."""
    inputs = keras.Input((5, 6))
    attention = layers.MultiHeadAttention(2, attention=layers.LocalAttention(3))
    outputs = attention(layers.EncoderBlock(2, 7)(inputs), causal=True)
    model = keras.Model(inputs, layers.FeedForward(5)(outputs))
    model.compile(keras.optimizers.Adam(NoamSchedule(6)), TokenCrossEntropy(), [TokenAccuracy()])
    model.save(tmp_path / "model.keras")
    sizes = dict(num_layers=1, d_model=6, ff_dim=5, num_heads=2)
    transformer = keras_transformer.Transformer(50, **sizes)
    transformer.build()
    transformer.save(tmp_path / "transformer.keras")
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    program = (
        f"{imports}\n"
        "import numpy as np\n"
        f"model = keras.models.load_model({str(tmp_path / 'model.keras')!r})\n"
        "assert type(model.loss).__name__ == 'TokenCrossEntropy'\n"
        f"print(repr(model.predict(np.load({str(tmp_path / 'x.npy')!r}), verbose=0).tolist()))\n"
        f"loaded = keras.models.load_model({str(tmp_path / 'transformer.keras')!r})\n"
        "assert loaded.count_params() and isinstance(loaded, keras_transformer.Transformer)"
    )
    process = run_python(program, KERAS_BACKEND=keras.backend.backend())
    assert process.returncode == 0, process.stderr
    found = np.array(ast.literal_eval(process.stdout))
    np.testing.assert_allclose(found, model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
