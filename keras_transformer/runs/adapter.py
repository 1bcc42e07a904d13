"""The adapter of a training with LoRA: two factors for each projection, and whose they are.

adapter.npz: "base", the SHA-256 of the weights that it adapts, and arrays by the paths of the
weights, such as "encoder/block_0/self_attention/query/lora_kernel_a" `(D, r)`.
"""

import hashlib
import pathlib
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.files.regular import check_arrays
from keras_transformer.layers.lora import FACTORS, adapted_layers
from keras_transformer.runs.model_state import all_finite, path_within
from keras_transformer.types import StrPath

ADAPTER = "adapter.npz"


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
