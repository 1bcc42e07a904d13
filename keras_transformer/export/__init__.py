"""Exports: writes translators and other models in the formats that servers load, and verifies them.

The folder `export/` beside this package has other things: the files with which a server is run, for
Docker, Kubernetes and systemd.
"""

import importlib
from typing import TYPE_CHECKING

_MODULES = {
    "export_ctranslate2": "ctranslate2_model",
    "export_hugging_face": "hugging_face",
    "export_image_captioner": "generation",
    "export_saved_model": "saved_model",
    "export_text_generator": "generation",
    "facts_of_runs": "model_card",
}
"""The file of each name: it loads when it is used, since only some need TensorFlow."""

__all__ = [*_MODULES]

if TYPE_CHECKING:  # where `__getattr__` finds the names, for type checkers and editors
    # ruff: noqa: F403
    from keras_transformer.export.ctranslate2_model import *
    from keras_transformer.export.generation import *
    from keras_transformer.export.hugging_face import *
    from keras_transformer.export.model_card import *
    from keras_transformer.export.saved_model import *
else:  # a checker shall report a name that does not exist

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
