"""The configuration of a layer that several layers or models may share."""

from typing import Any

import keras


def config_of_shared(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the configuration of a layer, from which Keras makes one layer for all that share it.

    Keras marks what is shared by an id, but only where it comes up again. By then it has copied the
    configuration of the first place, if that is inside the configuration of another layer.
    """
    return {**keras.saving.serialize_keras_object(layer), "shared_object_id": id(layer)}
