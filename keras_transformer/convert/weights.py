"""What the converters of all architectures share: settings that are checked, weights that fit."""

import json
import math
import re
from typing import Any

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.files.regular import VOCABULARY_BYTES, is_named, read_regular

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

    def check_all(self, shapes):
        """Does `check` for pairs of a name and a shape, before a model of absurd size is built."""
        for name, shape in shapes:
            self.check(name, shape)

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

    def copy_block(self, name, block, names, unbiased=()):
        """Copies all layers of a block.

        Args:
            name: their name of the block.
            block: encoder or decoder block.
            names: dict from the parts of `layers_of` to their names within the block.
            unbiased: the parts that have no bias in the file.
        """
        for part, layer in layers_of(block).items():
            if part.endswith(".norm"):
                self.copy_normalization(f"{name}.{names[part]}", layer)
            else:
                self.copy_dense(f"{name}.{names[part]}", layer, part not in unbiased)

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


def layers_of(block):
    """Returns the layers of an encoder or decoder block: dict from part to layer.

    A part is "self", "cross" or "feed_forward", a dot, and "query", "key", "value", "output",
    "inner", "outer" or "norm".
    """
    layers = {}
    for sublayer in ("self", "cross"):
        if attention := getattr(block, f"{sublayer}_attention", None):
            for name in ("query", "key", "value", "output"):
                layers[f"{sublayer}.{name}"] = getattr(attention, f"{name}_projection")
            residual = getattr(block, f"{sublayer}_attention_residual")
            layers[f"{sublayer}.norm"] = residual.normalization
    layers["feed_forward.inner"] = block.feed_forward.inner
    layers["feed_forward.outer"] = block.feed_forward.outer
    layers["feed_forward.norm"] = block.feed_forward_residual.normalization
    return layers


class Settings(dict[str, Any]):
    """The settings in a file; its methods refuse, in an `InputError`, what cannot be honoured.

    Args:
        values: dict of all settings.
        file: name of the file, for messages.
    """

    def __init__(self, values, file="config.json"):
        super().__init__(values)
        self.file = file

    @classmethod
    def read(cls, path, optional=False):
        """Returns those in a JSON file of Hugging Face's, none if an optional file is missing.

        A name that is there and cannot be read, such as a link to a missing file, is an error.
        """
        if optional and not is_named(path.parent, path.name):
            return cls({}, path.name)
        expected = "a directory that save_pretrained of transformers has written"
        content = read_regular(path.parent, path.name, expected, VOCABULARY_BYTES)
        try:
            content = json.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"Expected JSON. Received: {path}: {error}.") from None
        if not isinstance(content, dict):
            raise InputError(f"Expected a JSON object. Received: {path}: {type(content).__name__}.")
        return cls(content, path.name)

    def check(self, expected):
        """Raises `InputError` for a setting that is none of those expected.

        Args:
            expected: dict from the name of a setting to the values that it may have; a setting
                that is absent has the first.
        """
        for name, values in expected.items():
            if self.get(name, values[0]) not in values:
                raise InputError(
                    f"Expected {name} to be {' or '.join(map(repr, values))} in {self.file}. "
                    f"Nothing else can be converted. Received: {name}={self[name]!r}."
                )

    def size(self, name):
        """Returns a setting that must be there and an integer above 0."""
        return self._checked(name, self.get(name), _is_size, "an integer above 0")

    def sizes(self, name):
        """Returns the same of a setting that may also be a list of a height and a width."""
        value = self.get(name)
        if isinstance(value, list) and len(value) == 2 and all(map(_is_size, value)):
            return tuple(value)
        return (self.size(name),) * 2

    def number(self, name, default):
        """Returns a setting that is a number and at least 0, such as a dropout rate."""
        return self._checked(name, self.get(name, default), _is_number, "a number, 0 or above")

    def flag(self, name, default):
        """Returns a setting that is true or false."""
        value = self.get(name, default)
        return self._checked(name, value, lambda value: isinstance(value, bool), "true or false")

    def activation(self, name, ours=ACTIVATIONS):
        """Returns our name of the activation in the setting `name`.

        Args:
            ours: dict from their names to ours.
        """
        value = self.get(name)
        if not isinstance(value, str) or value not in ours:
            names = ", ".join(ours)
            raise InputError(f"Expected {name} to be one of {names}. Received: {name}={value!r}.")
        return ours[value]

    def _checked(self, name, value, is_right, expected):
        if not is_right(value):
            raise InputError(
                f"Expected {name} in {self.file} to be {expected}. Received: {name}={value!r}."
            )
        return value


def _is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value):
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf


def _some(names):
    names = sorted(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) or "none") + more
