"""Exports: writes translators and other models in the formats that servers load, and verifies them.

The folder `export/` beside this package has other things: the files with which a server is run, for
Docker, Kubernetes and systemd.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_transformer.export.ctranslate2_model import export_ctranslate2
    from keras_transformer.export.generation import export_image_captioner, export_text_generator
    from keras_transformer.export.hugging_face import export_hugging_face
    from keras_transformer.export.model_card import facts_of_runs
    from keras_transformer.export.saved_model import export_saved_model

__all__ = [
    "export_ctranslate2",
    "export_hugging_face",
    "export_image_captioner",
    "export_saved_model",
    "export_text_generator",
    "facts_of_runs",
]

_MODULES = {
    "export_ctranslate2": "ctranslate2_model",
    "export_hugging_face": "hugging_face",
    "export_image_captioner": "generation",
    "export_saved_model": "saved_model",
    "export_text_generator": "generation",
    "facts_of_runs": "model_card",
}
"""The file of each name: it loads when it is used, since only some need TensorFlow."""


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
