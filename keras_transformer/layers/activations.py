"""Activations by name: those of Keras, and GELU as GPT-2 computes it."""

import keras

from keras_transformer.errors import InputError


def gelu_tanh(x):
    """Returns 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), an approximation of GELU.

    It differs from GELU, x times the normal distribution function of x, by at most 5e-4 (Hendrycks
    and Gimpel, 2016, section 2, https://arxiv.org/abs/1606.08415). GPT-2 has it.
    """
    return keras.activations.gelu(x, approximate=True)


def activation_function(activation):
    """Returns the function of a name, of a function, or of what `activation_config` returned.

    Args:
        activation: "gelu_tanh", or anything that `keras.activations.get` accepts.
    """
    if activation == "gelu_tanh":
        return gelu_tanh
    try:
        return keras.activations.get(activation)
    except (ValueError, TypeError):
        raise InputError(
            "Expected gelu_tanh or the name of one of Keras's activations, such as relu or gelu. "
            f"Received: activation={activation!r}."
        ) from None


def activation_config(function):
    """Returns what a layer's config holds for an activation: its name, where it has one."""
    return "gelu_tanh" if function is gelu_tanh else keras.activations.serialize(function)
