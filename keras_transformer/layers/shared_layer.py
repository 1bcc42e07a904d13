"""The configuration of a layer that several layers or models may share."""

from typing import Any

import keras


def config_of_shared(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the configuration of a layer; while a model is saved, with an id of what is shared.

    Keras gives the id to an object that comes up again, and then marks its first place too. But it
    has copied that by then if it is inside the configuration of another layer, and would make two
    layers of one. So here each place is a second one.
    """
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)
