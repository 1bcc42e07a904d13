"""Blocks that compute their activations again in the backward pass, which saves memory.

Source: Chen et al., 2016, https://arxiv.org/abs/1604.06174; `keras.RematScope` says for which
layers.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops
from keras.src.backend import AutocastScope, get_keras_mask, set_keras_mask  # nothing public does

BLOCKS = [f"block_{i}" for i in range(1000)]  # the names in a `Stack` of any number of layers


def of_blocks() -> keras.RematScope:
    """Returns the scope in which the blocks of a new model compute their activations again."""
    return keras.RematScope("list_of_layers", layer_names=BLOCKS)


class Rematerialized:
    """A mix-in: a layer that `keras.RematScope` names draws the same dropout in both passes.

    Keras calls `jax.checkpoint`, `tf.recompute_grad` or PyTorch's `checkpoint` with the call of
    the layer. But these take functions that change nothing, and dropout changes the states of its
    random numbers. So here the call is such a function: of all states, weights and inputs.
    """

    trainable_variables: list[keras.Variable]  # of the layer
    non_trainable_variables: list[keras.Variable]

    def rematerialized_call(self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns `layer_call`, or what computes it twice, if the scope of the layer says so."""
        parent: Any = super()
        if parent.rematerialized_call(layer_call, *args, **kwargs) is layer_call:
            return layer_call  # the scope names other layers

        def call(*args, **kwargs):
            return _recomputed(self, layer_call, args, kwargs)

        return call


def _recomputed(layer, layer_call, *arguments):
    """Returns `layer_call(*args, **kwargs)`, of which nothing is kept for the backward pass."""
    weights, states = layer.trainable_variables, layer.non_trainable_variables
    with AutocastScope(None):  # not rounded to the compute dtype
        values = [weight.value for weight in weights]
        before = [ops.stop_gradient(state.value) for state in states]  # read now, not twice later
    leaves = keras.tree.flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if _has_gradient(leaf)]

    def pure(*tensors):
        values, inputs = tensors[: len(weights)], list(leaves)
        for place, tensor in zip(places, tensors[len(weights) :], strict=True):
            if (mask := get_keras_mask(leaves[place])) is not None:
                set_keras_mask(tensor, mask)
            inputs[place] = tensor
        mapping = [*zip(weights, values, strict=True), *zip(states, before, strict=True)]
        with keras.StatelessScope(mapping) as scope:
            args, kwargs = keras.tree.pack_sequence_as(arguments, inputs)
            output = layer_call(*args, **kwargs)
        after = {i: scope.get_current_value(v) for i, v in enumerate(states)}
        return output, {i: each for i, each in after.items() if each is not before[i]}

    output, changed = keras.remat(pure)(*values, *(leaves[place] for place in places))
    for i, value in changed.items():
        states[i].assign(value)
    return output


def _has_gradient(leaf):
    return ops.is_tensor(leaf) and "float" in keras.backend.standardize_dtype(leaf.dtype)
