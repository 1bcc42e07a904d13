"""The tensors in a directory of safetensors files, as float32 arrays."""

import json

import numpy as np

from keras_transformer.errors import InputError

INDEX = "model.safetensors.index.json"
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read_tensors(directory):
    """Returns a dict from names to arrays.

    Reads model.safetensors or, if there is an index, the files that it names. Floating-point
    numbers become float32; tensors of other numbers, such as masks and positions, are left out.

    Raises:
        InputError: no such file, a damaged one, one that misses tensors of the index, or the
            library `safetensors` is not installed.
    """
    if not (directory / INDEX).exists():
        return _read_file(directory / "model.safetensors")
    try:
        file_of_name = json.loads((directory / INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = sorted({directory / file for file in file_of_name.values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"Expected a JSON object with weight_map. Received: {directory / INDEX}: {error!r}."
        ) from None
    tensors = {}
    for file in files:
        found = _read_file(file)
        twice = sorted(set(tensors) & set(found))
        if twice:
            raise InputError(
                f"Expected each tensor in one of the files that {INDEX} names. Received: "
                f"{', '.join(twice[:5])} in {file} and in another. Copy all files again."
            )
        tensors.update(found)
    missing = sorted(set(file_of_name) - set(tensors))
    if missing:
        raise InputError(
            f"Expected the tensors that {INDEX} names. Received: files in {directory} without "
            f"{', '.join(missing[:5])}. Copy all files again."
        )
    return tensors


def _read_file(path):
    safetensors = _library()
    try:
        tensors = safetensors.deserialize(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"Expected weights in safetensors files. Received: {path}: {error.strerror}. If there "
            "is another format, load it in transformers and call save_pretrained."
        ) from None
    except safetensors.SafetensorError as error:
        raise InputError(
            f"Expected a safetensors file. Received: {path}: {error}. Copy it again."
        ) from None
    return {name: _array(**tensor) for name, tensor in tensors if tensor["dtype"] in DTYPES}


def _array(shape, dtype, data):
    array = np.frombuffer(data, DTYPES[dtype])
    if dtype == "BF16":  # the upper half of a float32
        array = (array.astype("<u4") << 16).view("<f4")
    return array.astype("float32").reshape(shape)


def _library():
    try:
        import safetensors
    except ModuleNotFoundError:
        raise InputError(
            "Expected the libraries that conversion needs. Received: no safetensors. "
            'Install them, in the clone of this package: pip install ".[convert]".'
        ) from None
    return safetensors


def write_tensors(path, tensors):
    """Writes a dict from names to arrays into one file, in the order of their names.

    Raises:
        InputError: the library `safetensors` is not installed.
    """
    _library()
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    save_file(arrays, path, metadata={"format": "pt"})  # what transformers asks for
