"""What the converters of all architectures share: settings that are checked, weights that fit."""

import math
import re

import numpy as np

from keras_transformer.errors import InputError

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""From names in Hugging Face's configurations to ours."""


class Weights:
    """Copies tensors into the weights of a model, and reports which are missing, left or misshapen.

    Args:
        tensors: dict from name to array.
        prefix: is left out of the names, where they have it: files of a model with a head have it,
            files of the model alone have not.
        ignored: regular expression of names, without the prefix, that hold no weights, such as
            masks.
        files, settings: names of the files and of the settings, for messages.

    Example:
    >>> dense = keras.layers.Dense(2)
    >>> dense.build((None, 3))
    >>> weights = Weights({"model.kernel": np.ones((2, 3)), "bias": np.ones(2)}, prefix="model.")
    >>> weights.copy("kernel", dense.kernel, np.transpose)
    >>> weights.copy("bias", dense.bias)
    >>> weights.check_none_left()
    """

    def __init__(
        self, tensors, prefix="", ignored=None, files="the weights", settings="config.json"
    ):
        self._files, self._settings = files, settings
        named = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        twice = [name for name in tensors if prefix + name in tensors and prefix]
        if twice:
            raise InputError(
                f"Expected each tensor once in {files}. Received: {_some(twice)}, and the same "
                f"with {prefix} before the name. Copy the file again, or take another model."
            )
        self._left = {
            name: tensor
            for name, tensor in named.items()
            if ignored is None or not re.fullmatch(ignored, name)
        }

    def __contains__(self, name):
        return name in self._left

    def peek(self, name):
        """Returns the tensor `name`, and leaves it to be taken."""
        return self._left[name]

    def check(self, name, shape):
        """Raises `InputError` unless there is a tensor `name`, of this shape."""
        if name not in self._left:
            raise InputError(
                f"Expected a tensor {name} in {self._files}. Received: none, or the "
                f"weights of another architecture; there remain {_some(self._left)}."
            )
        found = self._left[name].shape
        if found != tuple(shape):
            raise InputError(
                f"Expected {name} of shape {tuple(shape)}, which follows from {self._settings}. "
                f"Received: {name}.shape={found}."
            )

    def take(self, name, shape):
        """Returns the tensor `name`, of this shape and of finite numbers; once each."""
        self.check(name, shape)
        tensor = self._left.pop(name)
        if not np.all(np.isfinite(tensor)):
            raise InputError(
                f"Expected finite numbers in {self._files}. Received: {name}, in which some are "
                "NaN or infinite. Copy the file again, or take another model."
            )
        return tensor

    def copy(self, name, variable, change=None):
        """Assigns the tensor `name` to a variable, after `change` such as `np.transpose`."""
        shape = variable.shape if change is None else change(np.empty(variable.shape)).shape
        tensor = self.take(name, shape)
        variable.assign(tensor if change is None else change(tensor))

    def copy_dense(self, name, layer, has_bias=True):
        """Copies a dense layer, whose kernel PyTorch keeps as `(output, input)`."""
        self.copy(f"{name}.weight", layer.kernel, np.transpose)
        if has_bias:
            self.copy(f"{name}.bias", layer.bias)

    def copy_normalization(self, name, layer):
        """Copies the scale and the bias of a layer normalization."""
        self.copy(f"{name}.weight", layer.gamma)
        self.copy(f"{name}.bias", layer.beta)

    def take_copy(self, name, of, tensor):
        """Takes the tensor `name`, if it is there; it must have the numbers of the tensor `of`."""
        if name in self and not np.array_equal(self.take(name, tensor.shape), tensor):
            raise InputError(
                f"Expected {name} to be a copy of {of}, as in the only models that can be "
                "converted. Received: other numbers."
            )

    def check_none_left(self):
        """Raises `InputError` if a tensor has not been taken."""
        if self._left:
            raise InputError(
                f"Expected the tensors of the model in {self._settings} and no others. Received: "
                f"{_some(self._left)}. This package has no place for them."
            )


def check_settings(config, expected, file="config.json"):
    """Raises `InputError` for a setting of a model that the package cannot honour.

    Args:
        config: dict of config.json.
        expected: dict from the name of a setting to the tuple of values that it may have; a setting
            that is absent has the first.
        file: name of the file, for the message.
    """
    for name, values in expected.items():
        if config.get(name, values[0]) not in values:
            raise InputError(
                f"Expected {name} to be {' or '.join(map(repr, values))} in {file}. "
                f"Nothing else can be converted. Received: {name}={config[name]!r}."
            )


def size(config, name, file="config.json"):
    """Returns a setting that must be there and an integer above 0."""
    value = config.get(name)
    if not _is_size(value):
        raise InputError(
            f"Expected {name} in {file} to be an integer above 0. Received: {name}={value!r}."
        )
    return value


def sizes(config, name):
    """Returns the same of a setting that may be a list of two integers, a height and a width."""
    value = config.get(name)
    if isinstance(value, list) and len(value) == 2 and all(map(_is_size, value)):
        return tuple(value)
    return (size(config, name),) * 2


def number(config, name, default, file="config.json"):
    """Returns a setting that is a number and at least 0, such as a dropout rate."""
    value = config.get(name, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:
        raise InputError(
            f"Expected {name} in {file} to be a number, 0 or above. Received: {name}={value!r}."
        )
    return value


def flag(config, name, default, file="config.json"):
    """Returns a setting that is true or false."""
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise InputError(
            f"Expected {name} in {file} to be true or false. Received: {name}={value!r}."
        )
    return value


def activation_name(config, name):
    """Returns our name of the activation in the setting `name` of config.json."""
    value = config.get(name)
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise InputError(
            f"Expected {name} to be one of {', '.join(ACTIVATIONS)}. Received: {name}={value!r}."
        )
    return ACTIVATIONS[value]


def _is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _some(names):
    names = sorted(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) or "none") + more
