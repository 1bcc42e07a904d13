"""What our layers and models share: freezing, output shapes, configurations, no quantization."""

import functools
import re
from inspect import Parameter, signature
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_transformer.errors import InputError
from keras_transformer.layers.lora import HasLora
from keras_transformer.layers.nested import nested_layers
from keras_transformer.types import Self, Shape

UNNAMED = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class FreezesParts:
    """A mix-in: a layer with `trainable = False` freezes its parts also when it is built later.

    Keras freezes the sublayers and weights that are there when `trainable` becomes False. Those of
    a layer that is frozen before it is built, or loaded from a file, come later.
    """

    def _post_build(self):  # what Keras calls after `build`
        super()._post_build()
        if not self.trainable:
            self.trainable = True  # Keras on TensorFlow ignores what changes nothing
            self.trainable = False


class Layer(FreezesParts, HasLora, keras.layers.Layer):
    """A layer or model whose configuration is the arguments of its constructor.

    Each argument is an attribute of the same name. A class whose attribute has another value than
    the argument has a `get_config` of its own besides, and so has a user's subclass with arguments.
    The mask that Keras attached to the input is handed on to the output.
    """

    supports_masking = True

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()  # the arguments that all layers of Keras have
        names = [name for name in self._argument_names() if name not in config]
        return {**config, **{name: _saved(getattr(self, name)) for name in names}}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Returns the layer or model, with arguments that were saved as layers as layers again.

        Args:
            config: from `get_config`.
            custom_objects: dict from names to classes, as for `keras.models.load_model`.
        """
        config = dict(config)
        with keras.saving.custom_object_scope(custom_objects or {}):
            for name in cls._argument_names():
                value = config.get(name)
                if isinstance(value, dict) and value.get("class_name", "function") != "function":
                    config[name] = keras.saving.deserialize_keras_object(value)
            return cls(**config)

    @classmethod
    def _argument_names(cls):
        """Returns the names in our constructors' signatures, those of the base classes first."""
        names = []
        for base in reversed(cls.__mro__):
            if base.__module__.startswith("keras_transformer.") and "__init__" in vars(base):
                _, *parameters = signature(base.__init__).parameters.values()
                names += [p.name for p in parameters if p.kind not in UNNAMED]
        return names


class TracedShape:
    """A mix-in: the `compute_output_shape` that Keras's wrappers, as `TimeDistributed`, ask for.

    Keras would take a symbolic call's output from it alone, as if the call had no options. So the
    symbolic call is traced still, with its options, such as `return_attention_weights`.
    """

    built: bool  # of the layer
    build: Any

    def compute_output_spec(self, *arguments: Any, **options: Any) -> Any:
        return keras.Operation.compute_output_spec(self, *arguments, **options)

    def compute_output_shape(self, *shapes: Shape, **named: Shape) -> Shape:
        """Returns the shape of the call's output for the shapes of its inputs; builds the layer.

        Args:
            shapes, named: those of the inputs, in the order of the call; the names are those that
                `build` has for them.
        Raises:
            NotImplementedError: the call needs more than these inputs. `summary` expects this.
        """
        shapes = tuple(shape for shape in (*shapes, *named.values()) if shape is not None)
        if not self.built:
            self.build(*shapes)
        inputs = [tree.map_shape_structure(keras.KerasTensor, shape) for shape in shapes]
        try:
            return self.compute_output_spec(*inputs).shape
        except (ValueError, TypeError) as error:
            raise NotImplementedError(f"{type(self).__name__}: {error}") from error


class NotQuantized:
    """A mix-in: refuses `quantize`. Keras would only warn, and skip such layers one by one.

    These layers read one another's kernels (tied embeddings, decoding), which works with floating
    point kernels but not with integer kernels and their scales.
    """

    def quantize(self, mode: str | None = None, **options: Any) -> None:
        """Raises ValueError: there are no integer kernels."""
        raise InputError(
            f"{type(self).__name__} computes in floating point and cannot be quantized. "
            f"Received: mode={mode!r}. Train or load it with dtype='mixed_bfloat16' for half the "
            "bytes; in a model of your own with Keras 3.15, leave it out: quantize(..., filters="
            'lambda layer: not type(layer).__module__.startswith("keras_transformer")).'
        )


def _refusing_first(quantize):
    """Returns a `keras.Model.quantize` that refuses our layers before it changes any other.

    Keras goes through the layers, and would meet ours when those before are integers already.
    """

    @functools.wraps(quantize)
    def checked(model, *arguments, **options):
        given = signature(quantize).bind(model, *arguments, **options).arguments
        filters = given.get("filters") or ""
        patterns = [filters] if isinstance(filters, str) else filters
        for layer in nested_layers(model):
            if isinstance(layer, NotQuantized) and len(nested_layers(layer)) == 1:
                if callable(filters):
                    is_chosen = filters(layer)
                else:
                    is_chosen = any(re.search(pattern, layer.name) for pattern in patterns)
                if is_chosen:
                    layer.quantize(given.get("mode"))
        return quantize(model, *arguments, **options)

    return checked


keras.Model.quantize = _refusing_first(keras.Model.quantize)


def check_ids(ids, allowed, name="ids"):
    """Raises `ValueError` for an id outside the vocabulary, or a fraction, in a NumPy array.

    Tensors are not checked: that would wait for the device that has them.

    Args:
        ids: what a layer or model was called with.
        allowed: range of the ids.
        name: of the argument.
    """
    is_host_array = isinstance(ids, np.ndarray) and ids.dtype.kind in "iuf" and ids.size
    if is_host_array and not (allowed.start <= ids.min() and ids.max() < allowed.stop):
        raise InputError(
            f"Expected {name} from {allowed.start} to {allowed.stop - 1}, which the model has. "
            f"Received: {name} from {ids.min()} to {ids.max()}. "
            "Take the tokenizer with which it was trained."
        )
    if is_host_array and ids.dtype.kind == "f" and (ids != np.floor(ids)).any():
        raise InputError(
            f"Expected {name} that are whole numbers. Received: {name} with "
            f"{ids[ids != np.floor(ids)][0]}. Give ids, not vectors or probabilities."
        )


def build_embedding(embedding: keras.layers.Layer, input_shape: Shape) -> int:
    """Builds an embedding, unless another layer that shares it has; returns its vectors' width."""
    if not embedding.built:
        embedding.build(input_shape)
    inputs = tree.map_shape_structure(keras.KerasTensor, input_shape)
    return embedding.compute_output_spec(inputs).shape[-1]


def _saved(value):
    return config_of_shared(value) if isinstance(value, keras.layers.Layer) else plain(value)


def plain(value: Any) -> Any:
    """Returns a value as it is, but a plain dict for the tracked one that Keras makes of a dict."""
    return dict(value) if isinstance(value, dict) else value


def config_of_shared(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the configuration of a layer; while a model is saved, with an id of what is shared.

    Keras gives the id to an object that comes up again, and then marks its first place too. But it
    has copied that by then if it is inside the configuration of another layer, and would make two
    layers of one. So here each place is a second one.
    """
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)
