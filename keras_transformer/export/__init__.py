"""The SavedModels that a server serves: written, verified, read back."""

from keras_transformer.export.exported_translator import ExportedTranslator, load
from keras_transformer.export.image_captioner import export_image_captioner
from keras_transformer.export.saved_model import export_saved_model
from keras_transformer.export.text_generator import export_text_generator

__all__ = [
    "ExportedTranslator",
    "export_image_captioner",
    "export_saved_model",
    "export_text_generator",
    "load",
]
