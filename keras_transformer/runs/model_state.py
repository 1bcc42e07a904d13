"""What files keep of a model: its weights, an adapter, and the state of its optimizer.

An adapter is what a training with LoRA changes: two factors for each projection. adapter.npz has
"base", the SHA-256 of the weights that it adapts, and arrays by the paths of the weights, such as
"encoder/block_0/self_attention/query/lora_kernel_a" `(D, r)`.
"""

import contextlib
import hashlib
import math
import pathlib
import re
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.files.regular import check_arrays
from keras_transformer.layers.lora import FACTORS, adapted_layers
from keras_transformer.types import StrPath

ADAPTER = "adapter.npz"


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


def write_adapter(model: keras.Model, path: StrPath) -> None:
    """Writes the adapters of a model to a file."""
    factors: dict[str, Any] = {
        path_within(model, factor): np.asarray(factor)
        for layer in adapted_layers(model)
        for factor in (layer.lora_kernel_a, layer.lora_kernel_b)
    }
    np.savez(path, base=_checksum_of_base(model), **factors)


def merge_adapter(model: keras.Model, path: StrPath) -> None:
    """Adds the product of the two factors in a file to each kernel that they belong to.

    Raises:
        InputError: the file is no adapter, or one of other weights than those of the model.
    """
    kernels = {path_within(model, weight): weight for weight in model.weights}
    is_right, merged = False, []
    try:
        if not pathlib.Path(path).is_file():  # NumPy would wait for a pipe
            raise FileNotFoundError("no such file")
        check_arrays(path)
        with np.load(path) as arrays:
            factors = {name: arrays[name] for name in arrays}
        is_right = str(factors.pop("base")) == _checksum_of_base(model)
        for name in [name for name in factors if is_right and name.endswith(FACTORS[0])]:
            kernel = kernels[name.replace(FACTORS[0], "kernel")]
            first, second = factors[name], factors[name.replace(*FACTORS)]
            if (len(first), *second.shape[1:]) != tuple(kernel.shape):
                raise ValueError(f"{name} is of another shape")
            value = ops.convert_to_numpy(ops.add(kernel, ops.matmul(first, second)))
            merged.append((kernel, value))
        if is_right and not (merged and all_finite(value for _, value in merged)):
            raise ValueError("its numbers are not finite")
    except Exception as error:  # a damaged file raises errors of zipfile, zlib and NumPy
        raise InputError(
            f"Expected an adapter, which a training with lora_rank writes. Received: {path}: "
            f"{error}. Name the {ADAPTER} of such a run."
        ) from None
    if not is_right:
        raise InputError(
            f"Expected an adapter of these weights. Received: {path}, which was trained on others. "
            "Name the run that its training began from (--init-from), and the same checkpoint."
        )
    for kernel, value in merged:
        kernel.assign(value)


def _checksum_of_base(model):
    """Returns the SHA-256 of the weights of a model without its adapters."""
    found = hashlib.sha256()
    weights = {path_within(model, w): w for w in model.weights if w.name not in FACTORS}
    for name in sorted(weights):
        found.update(np.ascontiguousarray(weights[name]).tobytes())
    return found.hexdigest()


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
