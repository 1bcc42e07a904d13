"""Attention with linear biases (Press et al., 2022, https://arxiv.org/abs/2108.12409).

Shapes: T query length, S key length, H heads.

The paper's attention is causal. Here the encoder uses the bias too, in both directions.
"""

import math

import numpy as np
from keras import ops

from keras_transformer.types import Tensor


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Returns the slope of each head, `(H,)` float32: 2^(-8 h / H) for h = 1 to H (section 3).

    If H is not a power of two, the slopes are chosen as in the paper's own code: those of the next
    lower power of two, followed by every other slope of the next higher one.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[: num_heads - power], "float32")


def alibi_bias(distances: Tensor, num_heads: int) -> Tensor:
    """Returns -slope |distance|, a bias that lowers the scores of distant keys.

    Args:
        distances: `(T, S)`, query position minus key position.
        num_heads: H.
    Returns:
        `(H, T, S)` float32.
    """
    slopes = ops.convert_to_tensor(alibi_slopes(num_heads))[:, None, None]
    return -slopes * ops.abs(ops.cast(distances, "float32"))
