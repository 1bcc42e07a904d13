"""LoRA: low-rank adapters of frozen projections (Hu et al., 2021).

Shapes: D width of the input, F width of the output, r rank.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.nested import nested_layers
from keras_transformer.types import Tensor

FACTORS = ("lora_kernel_a", "lora_kernel_b")
"""The names of Keras for the weights of an adapter, A and B."""

PROJECTIONS = ("query", "key", "value", "output", "forget", "candidate", "inner", "outer")
"""The names of the projections of attention, of an `Ssru`, and of feed-forward networks."""


class HasLora:
    """A mix-in for layers and models with `Dense` projections, which `enable_lora` adapts."""

    def enable_lora(self, rank: int, target_layer_names: Iterable[str] | None = None) -> None:
        """Freezes the layer, and gives projections in it adapters, which alone are trained then.

        A projection becomes x (W + A B) + b, with A `(D, r)` and B `(r, F)`, which is zero at the
        beginning (section 4.1, https://arxiv.org/abs/2106.09685; by `keras.layers.Dense`). A model
        that was compiled must be compiled again. What is saved has W + A B in the place of W, so
        that a model that is loaded is a plain one.

        Args:
            rank: r.
            target_layer_names: names of the projections, in `PROJECTIONS`; None: "query" and
                "value", as in the paper's experiments and in KerasHub.
        Raises:
            ValueError: a rank below 1, no such projections, a layer that is not built, or one that
                has adapters.
        """
        layer: Any = self
        check_positive_integers(rank=rank)
        names = set(("query", "value") if target_layer_names is None else target_layer_names)
        parts = nested_layers(layer)
        found = [
            part for part in parts if isinstance(part, keras.layers.Dense) and part.name in names
        ]
        if adapted_layers(layer):
            raise InputError(
                f"Expected a layer without adapters. Received: {layer.name}, which has some. "
                "Make or load it again for others."
            )
        if not found or not all(part.built for part in found):
            raise InputError(
                f"Expected a built layer with projections of the names {', '.join(sorted(names))}. "
                f"Received: {layer.name}, built={layer.built}. Build or call it first, or name "
                "others as target_layer_names."
            )
        layer.trainable = False  # Keras on TensorFlow ignores what changes nothing
        layer.trainable = True  # also in parts that were frozen
        for variable in layer.trainable_variables:
            variable.trainable = False
        for part in found:
            with contextlib.ExitStack() as stack:  # else all factors would have one path
                for name in part.path.split("/")[:-1]:
                    stack.enter_context(keras.name_scope(name))
                part.enable_lora(rank)
        if isinstance(layer, keras.Model):
            layer.compiled = False  # else `fit` would go on with a step for the other weights


def adapted_layers(layer: keras.layers.Layer) -> list[Any]:
    """Returns the `Dense` layers in a layer or model that have adapters."""
    return [part for part in nested_layers(layer) if getattr(part, "lora_enabled", False)]


def kernel_variable(layer: keras.layers.Layer) -> keras.Variable:
    """Returns the variable W of a `Dense`; its attribute `kernel` is W + A B."""
    return next(variable for variable in layer.variables if variable.name == "kernel")


def merged_kernel(layer: Any) -> Tensor:
    """Returns W + A B of a `Dense` with an adapter, in the dtype of its variables."""
    scale = layer.lora_alpha / layer.lora_rank
    product = ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
    return ops.add(kernel_variable(layer), scale * product)


def merged_weights(model: keras.layers.Layer) -> list[Any]:
    """Returns the values of a model's weights as they are without adapters, which are merged."""
    kernels = {id(kernel_variable(layer)): merged_kernel(layer) for layer in adapted_layers(model)}
    return [kernels.get(id(w), w) for w in model.weights if w.name not in FACTORS]
