"""The tensors in a `pytorch_model.bin`, as float32 arrays, without running code from the file."""

import pickle
import re

from keras_transformer.errors import InputError

SAFE = (2, 6)
"""The first version of PyTorch whose `weights_only` cannot be tricked (CVE-2025-32434)."""


def read_pytorch_tensors(path):
    """Returns a dict from names to arrays, of the tensors of floating-point numbers.

    The file is a pickle, which can contain any program. PyTorch reads it with `weights_only`, which
    refuses everything except tensors.

    Raises:
        InputError: PyTorch is missing or too old, or the file holds something else.
    """
    remedy = (
        'Install it, pip install "torch>=2.6", or save the model as safetensors with transformers.'
    )
    try:
        import torch
    except ModuleNotFoundError:
        raise InputError(
            f"Expected PyTorch, which {path} needs. Received: none installed. {remedy}"
        ) from None
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < SAFE:
        raise InputError(
            f"Expected PyTorch 2.6 or later, which reads {path} safely. "
            f"Received: {torch.__version__}. {remedy}"
        )
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        return {
            name: tensor.float().numpy()
            for name, tensor in tensors.items()
            if tensor.is_floating_point()
        }
    except pickle.UnpicklingError:  # its message advises to load the file without this protection
        raise InputError(
            f"Expected a file of tensors alone. Received: {path}, which is damaged, or has objects "
            "that can run a program when they are loaded. Copy it again, or take the model as "
            "safetensors."
        ) from None
    except Exception as error:  # unpickling can raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"Expected a file of tensors alone. Received: {path}: {reason} Copy it again."
        ) from None
