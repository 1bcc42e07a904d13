"""Trains a Transformer on parallel text, translates with it, evaluates, exports and serves it.

Importing the package imports neither TensorFlow nor Keras: a subpackage is imported when it is
first used, or when `keras.models.load_model` needs a class from it.

>>> import keras_transformer
>>> keras_transformer.Config.from_preset("tiny")
"""

import importlib

from keras_transformer import keras_names, quiet_tensorflow

__version__ = "0.1.0"

_ROOMS = (
    "backend",
    "config",
    "convert",
    "data",
    "decoding",
    "evaluation",
    "export",
    "layers",
    "models",
    "plots",
    "tokenizers",
    "training",
    "translator",
)
_ROOM_OF_NAME = {
    "Bert": "models",
    "Config": "config",
    "Gpt": "models",
    "RnnSeq2Seq": "models",
    "Transformer": "models",
    "Translator": "translator",
    "load": "loading",
}

__all__ = [*_ROOMS, *_ROOM_OF_NAME]


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ROOM_OF_NAME:
        return getattr(importlib.import_module(f"{__name__}.{_ROOM_OF_NAME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*globals(), *__all__]


keras_names.register()
quiet_tensorflow.register()
