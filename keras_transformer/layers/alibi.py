"""Attention with linear biases (Press et al., 2022, https://arxiv.org/abs/2108.12409).

Shapes: T query length, S key length, H heads.
"""

import math

import numpy as np
from keras import ops


def alibi_slopes(num_heads):
    """Returns the slope of each head, `(H,)` float32: 2^(-8 h / H) for h = 1 to H (section 3).

    For an H that is no power of two, as the paper's own code does it: those of the power of two
    below, then every other one of the power above.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[: num_heads - power], "float32")


def alibi_bias(distances, num_heads):
    """Returns -slope |distance|, what to add to the scores: the farther, the less.

    The paper's is causal; in an encoder both directions count alike.

    Args:
        distances: `(T, S)`, query position minus key position.
        num_heads: H.
    Returns:
        `(H, T, S)` float32.
    """
    slopes = ops.convert_to_tensor(alibi_slopes(num_heads))[:, None, None]
    return -slopes * ops.abs(ops.cast(distances, "float32"))
