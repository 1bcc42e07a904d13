"""Activations by name: those of Keras, and two approximations of GELU."""

import keras
from keras import ops

from keras_transformer.errors import InputError


def gelu_tanh(x):
    """Returns 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), an approximation of GELU.

    It differs from GELU, x times the normal distribution function of x, by at most 5e-4 (Hendrycks
    and Gimpel, 2016, section 2, https://arxiv.org/abs/1606.08415). GPT-2 has it.
    """
    return keras.activations.gelu(x, approximate=True)


def gelu_sigmoid(x):
    """Returns x sigmoid(1.702 x), another approximation of GELU, which differs by at most 0.021.

    Source: Hendrycks and Gimpel, 2016, section 2, https://arxiv.org/abs/1606.08415. Marian has it.
    """
    return x * ops.sigmoid(1.702 * x)


NAMED = {"gelu_tanh": gelu_tanh, "gelu_sigmoid": gelu_sigmoid}
"""The activations that Keras does not know by these names."""


def activation_function(activation):
    """Returns the function of a name, of a function, or of what `activation_config` returned.

    Args:
        activation: a name in `NAMED`, or anything that `keras.activations.get` accepts.
    """
    if isinstance(activation, str) and activation in NAMED:
        return NAMED[activation]
    try:
        return keras.activations.get(activation)
    except (ValueError, TypeError):
        raise InputError(
            "Expected gelu_tanh, gelu_sigmoid or the name of one of Keras's activations, such as "
            f"relu or gelu. Received: activation={activation!r}."
        ) from None


def activation_config(function):
    """Returns what a layer's config holds for an activation: its name, where it has one."""
    names = {named: name for name, named in NAMED.items()}
    return names.get(function) or keras.activations.serialize(function)
