"""The tensors in files of safetensors or of PyTorch, as float32 arrays; no code in them is run."""

import json
import os
import pickle
import re
import zipfile

import numpy as np

from keras_transformer.errors import PACKAGES, InputError, import_library
from keras_transformer.files.regular import (
    VOCABULARY_BYTES,
    is_named,
    memory_bytes,
    read_regular,
    regular_file,
    unpacked_bytes,
)

MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
SAFE_PYTORCH = (2, 6)
"""The first version of PyTorch whose `weights_only` cannot be tricked (CVE-2025-32434)."""


def read_tensors(directory):
    """Returns a dict from names to arrays.

    Reads model.safetensors or, without it, the files that the index names, as `transformers` does.
    Floating-point numbers become float32; tensors of other numbers, such as masks and positions,
    are left out.

    Raises:
        InputError: no such file, a damaged one, one that misses tensors of the index, or the
            library `safetensors` is not installed.
    """
    if is_named(directory, MODEL) or not is_named(directory, INDEX):
        return _read_file(directory, MODEL)
    content = read_regular(directory, INDEX, "an index of weights", VOCABULARY_BYTES)
    try:
        file_of_name = json.loads(content.decode("utf-8"))["weight_map"]
        files = sorted({os.fspath(file) for file in file_of_name.values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"Expected a JSON object with weight_map. Received: {directory / INDEX}: {error!r}."
        ) from None
    tensors = {}
    for file in files:
        found = _read_file(directory, file)
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


def _read_file(directory, name):
    safetensors, path = import_library("safetensors"), directory / name
    try:
        tensors = safetensors.deserialize(regular_file(directory, name).read_bytes())
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


def write_tensors(path, tensors):
    """Writes a dict from names to arrays into one file, in the order of their names.

    Raises:
        InputError: the library `safetensors` is not installed.
    """
    import_library("safetensors")
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    path.touch()
    mode = path.stat().st_mode  # by the umask, where the library's new file has 0600
    save_file(arrays, path, metadata={"format": "pt"})  # what transformers asks for
    path.chmod(mode)


def read_pytorch_tensors(path):
    """Returns a dict from names to arrays, of the tensors of floating-point numbers.

    The file is a pickle, which can contain any program. PyTorch reads it with `weights_only`, which
    refuses everything except tensors.

    Raises:
        InputError: PyTorch is missing or too old, or the file holds something else.
    """
    instead = ", or save the model as safetensors with transformers."
    torch = import_library("torch", instead)
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < SAFE_PYTORCH:
        raise InputError(
            f"Expected PyTorch 2.6 or later, which reads {path} safely. "
            f"Received: {torch.__version__}. "
            f"Install it: pip install {PACKAGES['torch']}{instead}"
        )
    try:
        regular_file(path.parent, path.name)
        if zipfile.is_zipfile(path) and unpacked_bytes(path) > path.stat().st_size:
            raise ValueError("it is compressed, which PyTorch's own files are not.")
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
        for name, tensor in floating.items():
            if tensor.nbytes > tensor.untyped_storage().nbytes():  # the same numbers many times
                raise ValueError(f"{name} has fewer numbers than its shape {tuple(tensor.shape)}.")
        if 4 * sum(tensor.numel() for tensor in floating.values()) > memory_bytes():
            raise ValueError("its tensors, which may share numbers, are larger than the memory.")
        return {name: tensor.float().numpy() for name, tensor in floating.items()}
    except pickle.UnpicklingError:  # its message advises to load the file without this protection
        raise InputError(
            f"Expected a file of tensors alone. Received: {path}, which is damaged, or has objects "
            "that can run a program when they are loaded. Copy it again, or take the model as "
            "safetensors."
        ) from None
    except Exception as error:  # unpickling can raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"Expected a file of tensors alone. Received: {path}: {reason.rstrip('.')}. Copy it "
            "again."
        ) from None
