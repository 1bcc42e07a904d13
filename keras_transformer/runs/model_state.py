"""What files keep of a model: its weights, and apart from them the state of its optimizer."""

import contextlib
import math
import re

import numpy as np

from keras_transformer.layers.lora import adapted_layers


def write_weights(model, path):
    """Writes the weights of a model to a `.weights.h5` file."""
    with _without_optimizer(model):
        model.save_weights(path)


def read_weights(model, path):
    """Gives a model the weights in a `.weights.h5` file."""
    with _without_optimizer(model):
        model.load_weights(path)


@contextlib.contextmanager
def _without_optimizer(model):
    """Hides the optimizer of a compiled model from Keras.

    Keras counts its state among the weights. A training that starts from the weights of another
    run would then go on with that run's steps and moments, and the file is three times as large.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        yield
        return
    model.optimizer = None
    try:
        yield
    finally:
        model.optimizer = optimizer


def path_within(model, part):
    """Returns the path of a weight or layer without the model's name, which Keras numbers."""
    return part.path.removeprefix(f"{model.path}/")


def bytes_of(variables):
    """Returns an upper limit for the size of a file with these variables, in bytes."""
    entries = sum(math.prod(variable.shape) + 1024 for variable in variables)  # 4 KB of names each
    return 4 * entries


def all_finite(tensors):
    """Returns whether all numbers in some tensors or variables are finite."""
    return all(np.all(np.isfinite(np.asarray(tensor))) for tensor in tensors)


def training_state(model):
    """Returns the variables that a checkpoint holds besides the weights: dict from key to variable.

    The key of an optimizer's variable is made of the kind of the optimizer and of the path of the
    weight that it belongs to, without the name of the model, which Keras numbers.
    """
    weights = {id(weight) for weight in model.weights}
    # the states of random number generators are variables, but no weights
    random_states = (v for v in model.non_trainable_variables if id(v) not in weights)
    found = {f"random/{i}": variable for i, variable in enumerate(random_states)}
    for layer in adapted_layers(model):  # whose weights are saved as one kernel
        found |= {f"lora/{path_within(model, weight)}": weight for weight in layer.weights}
    for variable in model.optimizer.variables:
        optimizer, _, name = variable.path.partition("/")
        if name == "gradient_norm":  # a measurement of the last step
            continue
        kind = re.sub(r"_\d+$", "", optimizer)  # Keras numbers optimizers too
        key = f"optimizer/{kind}/{name.removeprefix(f'{model.name}_')}"
        if key in found:
            raise ValueError(f"Two variables of the optimizer have one name: {key}")
        found[key] = variable
    return found
