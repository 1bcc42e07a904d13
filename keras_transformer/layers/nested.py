"""The layers within a layer, which Keras lists for a model's first level alone."""

from typing import Any

import keras


def nested_layers(layer: keras.layers.Layer) -> list[Any]:
    """Returns a layer, and then all layers within it and within these, each once.

    This is the only place that uses `_flatten_layers` of Keras 3.15, which is not public.
    """
    return layer._flatten_layers()
