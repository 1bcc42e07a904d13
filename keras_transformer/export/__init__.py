"""The SavedModel that takes strings and returns strings: written, proven, read back."""

from keras_transformer.export.exported_translator import ExportedTranslator, load
from keras_transformer.export.saved_model import export_saved_model

__all__ = ["ExportedTranslator", "export_saved_model", "load"]
