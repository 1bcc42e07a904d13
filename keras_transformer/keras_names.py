"""Tells Keras the names of our classes, which load when a saved model asks for one.

`keras.models.load_model` finds a class by the name that it was registered under, and a class
registers itself when its module is imported. `import keras_transformer` imports no module, and not
even Keras, so it leaves placeholders with Keras, now or as soon as Keras is imported.
"""

import importlib
import importlib.abc
import sys

PACKAGE = "keras_transformer"
CLASSES = {
    "layers": (
        "Attention",
        "BlockAttention",
        "DecoderBlock",
        "Dense",
        "Dropout",
        "EluFeatures",
        "EncoderBlock",
        "FeedForward",
        "HeadwiseDense",
        "LayerNormalization",
        "LearnedPositions",
        "LinearAttention",
        "LocalAttention",
        "MultiHeadAttention",
        "PositiveRandomFeatures",
        "Residual",
        "ScaledDotProductAttention",
        "SinusoidalPositions",
        "StridedAttention",
        "TokenEmbedding",
    ),
    "models": ("Transformer",),
    "training": (
        "InverseSquareRoot",
        "PaperSchedule",
        "Perplexity",
        "TokenAccuracy",
        "TokenCrossEntropy",
    ),
}
"""From room to the classes in it that a saved model may name; a test reads them in the source."""


class Placeholder:
    """Stands with Keras for a class of ours, until the class takes its place by being imported."""

    def __init__(self, room, name):
        self._room = room
        self._name = name

    def _load(self):
        return getattr(importlib.import_module(f"{PACKAGE}.{self._room}"), self._name)

    def __call__(self, *args, **kwargs):
        return self._load()(*args, **kwargs)

    def __getattr__(self, attribute):  # as `from_config`, which is what Keras asks for
        return getattr(self._load(), attribute)


def register():
    """Leaves a placeholder for each class with Keras, now or when Keras has been imported."""
    if "keras" in sys.modules:
        _leave_placeholders(sys.modules["keras"])
    else:
        sys.meta_path.insert(0, _AfterKeras())


def _leave_placeholders(keras):
    known = keras.saving.get_custom_objects()  # what is registered, not a copy of it
    for room, names in CLASSES.items():
        for name in names:
            known.setdefault(f"{PACKAGE}>{name}", Placeholder(room, name))


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Finds Keras as it is found without it, and leaves the placeholders once it is imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                sys.meta_path.remove(self)  # not before: to be found is not to be imported
                _leave_placeholders(module)

            spec.loader.exec_module = execute_and_register
        return spec
