"""Tells Keras the names of our classes, which load when a saved model asks for one.

`keras.models.load_model` finds a class by the name that it was registered under, and a class
registers itself when its module is imported. `import keras_transformer` imports none of these
modules, not even Keras, so it registers placeholders, now or as soon as Keras is imported.
"""

import importlib

import wrapt

PACKAGE = "keras_transformer"
CLASSES = {
    "layers": (
        *("Attention", "BertEmbedding", "BlockAttention", "ConvolutionalEmbedding", "Decoder"),
        *("DecoderBlock", "Dense", "Dropout", "EluFeatures", "Encoder", "EncoderBlock"),
        *("FeedForward", "GridPositions", "HeadwiseDense", "LayerNormalization"),
        *("LearnedPositions", "LinearAttention", "LocalAttention", "MultiHeadAttention"),
        *("PatchEmbedding", "PositiveRandomFeatures", "Residual", "RnnDecoder", "RnnEncoder"),
        *("ScaledDotProductAttention", "SinusoidalPositions", "Ssru", "StridedAttention"),
        *("TokenEmbedding", "WordDropout"),
    ),
    "models": (
        *("Bert", "BertClassifier", "BertPretraining", "BertTokenClassifier", "Ensemble"),
        *("Gpt", "ImageCaptioner", "RnnSeq2Seq", "Transformer", "VisionTransformer"),
    ),
    "training": (
        *("CosineDecay", "InverseSquareRoot", "LinearDecay", "NoamSchedule", "Perplexity"),
        *("TokenAccuracy", "TokenCrossEntropy"),
    ),
}
"""Per subpackage, the classes that a saved model may name; a test compares them with the source."""


class Placeholder:
    """Registered under the name of one of our classes until the class itself is imported."""

    def __init__(self, subpackage, name):
        self._subpackage = subpackage
        self._name = name

    def _load(self):
        return getattr(importlib.import_module(f"{PACKAGE}.{self._subpackage}"), self._name)

    def __call__(self, *args, **kwargs):
        return self._load()(*args, **kwargs)

    def __getattr__(self, attribute):  # such as `from_config`, which Keras calls
        return getattr(self._load(), attribute)


def register():
    """Registers a placeholder for each class with Keras, now or when Keras is imported."""
    wrapt.register_post_import_hook(_register_placeholders, "keras")


def _register_placeholders(keras):
    known = keras.saving.get_custom_objects()  # the registry itself, not a copy
    for subpackage, names in CLASSES.items():
        for name in names:
            known.setdefault(f"{PACKAGE}>{name}", Placeholder(subpackage, name))
