"""The annotations of the public interface: they are complete, and a type checker uses them."""

import importlib
import inspect
import pathlib
import subprocess
import sys

import pytest

import keras_transformer

ROOT = pathlib.Path(keras_transformer.__file__).parents[1]
PUBLIC = (
    "checks",
    "config",
    "convert",
    "data",
    "decoding",
    "export",
    "layers",
    "models",
    "plots",
    "runs",
    "tokenizers",
    "training",
    "translation.evaluation",
    "translation.loading",
    "translation.translator",
)
KERAS_ALONE_CALLS = {"BaseModel.make_train_function", "BaseModel.export"}
"""They pass their arguments on to the methods of Keras, which have no annotations."""


def names_in(module):
    """The public names of a module: those it lists, or those it defines."""
    defined = [name for name, value in vars(module).items() if is_ours(value, module.__name__)]
    return getattr(module, "__all__", [name for name in defined if not name.startswith("_")])


def is_ours(value, module="keras_transformer"):
    return getattr(value, "__module__", "").startswith(module)


def functions_of(value):
    """A function, or the public methods, properties and the constructor of a class."""
    if not inspect.isclass(value):
        return [value] if inspect.isfunction(value) else []
    found = []
    for cls in filter(is_ours, value.__mro__):
        for name, member in vars(cls).items():
            if not name.startswith("_") or name in ("__init__", "__call__", "__len__"):
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                found += [function] if inspect.isfunction(function) and is_ours(function) else []
    return found


def missing_annotations(function):
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    missing = [p.name for p in parameters if p.annotation is p.empty]
    return missing + ["return"] * (signature.return_annotation is signature.empty)


def test_public_functions_say_what_they_take_and_return():
    missing = {}
    for name in PUBLIC:
        module = importlib.import_module(f"keras_transformer.{name}")
        functions = {f for each in names_in(module) for f in functions_of(getattr(module, each))}
        assert functions, name
        for function in functions:
            if function.__qualname__ not in KERAS_ALONE_CALLS:
                place = f"{function.__module__}.{function.__qualname__}"
                missing[place] = missing_annotations(function)
    assert not {place: names for place, names in missing.items() if names}


CLIENT = """
import keras_transformer
from keras_transformer import Config, Transformer, layers
from keras_transformer.data import ParallelCorpus, TranslationBatches
from keras_transformer.translation.evaluation import bleu
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.training import InverseSquareRoot, train
from keras_transformer.translation.translator import Translator

corpus = ParallelCorpus.from_pairs([("A dog runs.", "Ein Hund läuft.")])
tokenizer = SentencePieceTokenizer.train(corpus.source + corpus.target, vocab_size=80)
batches = TranslationBatches(corpus, tokenizer, batch_tokens=512)
model = Transformer.from_preset("tiny", tokenizer.vocab_size, num_layers=1)
model.compile("adam", loss="mse")
model.fit(batches.dataset(), steps_per_epoch=len(batches))
translator = Translator(model, tokenizer)
text: str = translator("A dog runs.")
texts: list[str] = translator(["A dog runs."])
score: float = bleu(texts, ["Ein Hund läuft."]).value
attention = layers.MultiHeadAttention(4, attention=layers.LocalAttention(window=8))
best = keras_transformer.load("run", beam_size=2).translate(["A dog runs."], n_best=2)[0][0].text
metrics = train(Config.from_preset("tiny").override(["training.max_steps=3"]), "run")
"""
WRONG = {
    'layers.MultiHeadAttention(num_heads="4")': '"num_heads" to "MultiHeadAttention"',
    "layers.LocalAttention(window=None)": '"window" to "LocalAttention"',
    "keras_transformer.Transfomer(80)": 'no attribute "Transfomer"',
    'Transformer.from_preset("tiny", "80")': '"from_preset"',
    'Transformer("80")': '"Transformer"',
    "ParallelCorpus.from_files(corpus, corpus)": '"from_files"',
    'translator.translate("A dog runs.")': '"translate"',
    'number: int = translator("A dog runs.")': 'expression has type "str"',
    'InverseSquareRoot(peak_learning_rate="0.1")': '"InverseSquareRoot"',
    "batches.arays()": 'no attribute "arays"',
    'Config.from_preset("tiny").training.max_step': 'no attribute "max_step"',
    'bleu("a text", ["a text"])': '"bleu"',
}
"""From a line that is wrong to what a type checker must say about it."""


@pytest.mark.slow
def test_a_program_is_checked_and_each_wrong_line_is_reported(tmp_path):
    pytest.importorskip("mypy", reason="it checks the types: pip install '.[dev]'")
    program = tmp_path / "client.py"
    program.write_text(CLIENT + "\n".join(WRONG))
    command = [sys.executable, "-m", "mypy", "--strict", "--allow-untyped-calls", str(program)]
    # silent: only the program is held to the strict rules, as with an installed package
    config = ["--config-file", str(ROOT / "setup.cfg"), "--follow-imports=silent"]
    config.append("--no-error-summary")
    process = subprocess.run([*command, *config], capture_output=True, text=True, cwd=ROOT)
    reported = {}
    for line in process.stdout.splitlines():
        place, found, message = line.partition(": error: ")
        if not found:
            assert ": note: " in line, line
            continue
        reported.setdefault(int(place.rpartition(":")[2]), message)
    first = len(CLIENT.splitlines()) + 1
    expected = dict(enumerate(WRONG.values(), start=first))
    assert reported.keys() == expected.keys(), process.stdout
    assert all(expected[number] in message for number, message in reported.items()), reported
