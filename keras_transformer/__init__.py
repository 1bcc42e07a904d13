"""Trains a Transformer on parallel text, translates with it, evaluates, exports and serves it.

Importing the package imports neither TensorFlow nor Keras: a subpackage is imported when it is
first used, or when `keras.models.load_model` needs a class from it.

>>> import keras_transformer
>>> keras_transformer.Config.from_preset("tiny")
"""

import importlib
from typing import TYPE_CHECKING

from keras_transformer import keras_names
from keras_transformer.files.version_numbers import PACKAGE_VERSION

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from keras_transformer import backend as backend
    from keras_transformer import config as config
    from keras_transformer import convert as convert
    from keras_transformer import data as data
    from keras_transformer import decoding as decoding
    from keras_transformer import export as export
    from keras_transformer import layers as layers
    from keras_transformer import models as models
    from keras_transformer import plots as plots
    from keras_transformer import tokenizers as tokenizers
    from keras_transformer import training as training
    from keras_transformer import translation as translation
    from keras_transformer.config import Config as Config
    from keras_transformer.models import Bert as Bert
    from keras_transformer.models import Gpt as Gpt
    from keras_transformer.models import RnnSeq2Seq as RnnSeq2Seq
    from keras_transformer.models import Transformer as Transformer
    from keras_transformer.translation.loading import load as load
    from keras_transformer.translation.translator import Translator as Translator

__version__ = PACKAGE_VERSION

_SUBPACKAGES = (
    *("backend", "config", "convert", "data", "decoding", "export"),
    *("layers", "models", "plots", "tokenizers", "training", "translation"),
)
_MODULE_OF_NAME = {
    "Bert": "models",
    "Config": "config",
    "Gpt": "models",
    "RnnSeq2Seq": "models",
    "Transformer": "models",
    "Translator": "translation.translator",
    "load": "translation.loading",
}

__all__ = [*_SUBPACKAGES, *_MODULE_OF_NAME]


if not TYPE_CHECKING:  # a checker shall report a name that does not exist

    def __getattr__(name):
        if name in _SUBPACKAGES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _MODULE_OF_NAME:
            return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*globals(), *__all__]


keras_names.register()
