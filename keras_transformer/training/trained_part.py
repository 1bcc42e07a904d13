"""Which weights a training changes: all, the adapters of LoRA, or what `training.freeze` leaves."""

from keras_transformer.config.settings import check_known
from keras_transformer.errors import InputError
from keras_transformer.layers.lora import PROJECTIONS
from keras_transformer.layers.nested import nested_layers
from keras_transformer.runs.model_state import path_within


def choose_trained_part(model, training):
    """Gives a built model the adapters of `training.lora_rank`, and freezes `training.freeze`.

    A name is that of any layer, such as "feed_forward", or the path of one, "decoder/block_0".

    Raises:
        InputError: a model without projections to adapt, a name of no layer, or nothing is left to
            train.
    """
    if training.lora_rank:
        model.enable_lora(training.lora_rank, PROJECTIONS)
    named = {}
    for layer in nested_layers(model)[1:]:
        if layer.weights:
            path = path_within(model, layer)
            named.setdefault(layer.name, []).append(layer)
            named.setdefault(path, []).append(layer)
    for name in (training.freeze or "").split():
        if name not in named:  # the list is shorter than all paths
            check_known(name, sorted(n for n in named if n.count("/") < 2), "a layer to freeze")
        for layer in named[name]:
            layer.trainable = False
    if not model.trainable_variables:
        raise InputError(
            "Expected a part of the model that is trained. Received: "
            f"training.freeze={training.freeze}, which is all of it. Name fewer layers."
        )
