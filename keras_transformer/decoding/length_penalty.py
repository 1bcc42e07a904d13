"""Length normalization of scores (Wu et al., 2016, eq. 14, https://arxiv.org/abs/1609.08144)."""

from keras import ops

from keras_transformer.types import Tensor


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """Returns `((5 + length) / 6) ** alpha`, the divisor of a summed log-probability.

    The longer a hypothesis, the lower its summed log-probability: without normalization
    (`alpha=0`) a search prefers short answers. The coverage penalty of the paper is left out.

    Args:
        length: number of tokens, including the end token; a number or a tensor.
        alpha: strength; 0 switches it off, 0.6 is the usual choice.
    Returns:
        float32 tensor of the shape of `length`.
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def normalized_score(log_probability, length, alpha):
    """Returns the score that ranks hypotheses, `log_probability / length_penalty`."""
    return log_probability / length_penalty(length, alpha)
