"""Length normalization of scores, in two forms.

- "gnmt": Wu et al., 2016, eq. 14, https://arxiv.org/abs/1609.08144.
- "length": the plain power of the length, as in Marian, CTranslate2 and Hugging Face's `generate`.
"""

from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.types import Tensor

FORMS = ("gnmt", "length")


def length_penalty(length: Tensor, alpha: float, form: str = "gnmt") -> Tensor:
    """Returns the divisor of a summed log-probability.

    It is `((5 + length) / 6) ** alpha` with "gnmt", and `length ** alpha` with "length".

    The longer a hypothesis, the lower its summed log-probability: without normalization
    (`alpha=0`) a search prefers short answers. The coverage penalty of the paper is left out.

    Args:
        length: number of tokens, including the end token; a number or a tensor.
        alpha: strength; 0 switches it off. The usual choice is 0.6 with "gnmt", 1 with "length".
        form: "gnmt" or "length".
    Returns:
        float32 tensor of the shape of `length`.
    Raises:
        ValueError: an unknown form.
    """
    if form not in FORMS:
        raise InputError(f"length_normalization must be one of {FORMS}. Received: {form!r}.")
    length = ops.cast(length, "float32")
    if form == "length":
        return ops.power(ops.maximum(length, 1.0), alpha)  # an output without tokens has score 0
    return ops.power((5.0 + length) / 6.0, alpha)


def normalized_score(log_probability, length, alpha, form):
    """Returns the score that ranks hypotheses, `log_probability / length_penalty`."""
    return log_probability / length_penalty(length, alpha, form)
