"""The models that a server serves: written and verified."""

from keras_transformer.export.ctranslate2_model import export_ctranslate2
from keras_transformer.export.hugging_face import export_hugging_face
from keras_transformer.export.image_captioner import export_image_captioner
from keras_transformer.export.saved_model import export_saved_model
from keras_transformer.export.text_generator import export_text_generator

__all__ = [
    "export_ctranslate2",
    "export_hugging_face",
    "export_image_captioner",
    "export_saved_model",
    "export_text_generator",
]
