"""Models, built of `keras_transformer.layers`."""

from keras_transformer.models.transformer import Transformer

__all__ = ["Transformer"]
