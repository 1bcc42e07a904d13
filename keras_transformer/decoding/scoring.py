"""Scores of outputs: their log-probabilities, normalized by their lengths in one of two forms.

- "gnmt": Wu et al., 2016, eq. 14, https://arxiv.org/abs/1609.08144.
- "length": the plain power of the length, as in Marian, CTranslate2 and Hugging Face's `generate`.

Shapes: B batch, T output length, V vocabulary.
"""

import math

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.hypotheses import count_tokens
from keras_transformer.errors import InputError
from keras_transformer.special_ids import OUR_SPECIAL_IDS, SpecialIds
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
        ValueError: an unknown form, or an alpha that is not a finite number from 0.
    """
    if form not in FORMS:
        raise InputError(f"length_normalization must be one of {FORMS}. Received: {form!r}.")
    if not 0 <= alpha < math.inf:  # a comparison with NaN is False
        raise InputError(
            f"length_penalty must be a number from 0. Received: length_penalty={alpha}. "
            "0 prefers short answers most."
        )
    length = ops.cast(length, "float32")
    if form == "length":
        return ops.power(ops.maximum(length, 1.0), alpha)  # an output without tokens has score 0
    return ops.power((5.0 + length) / 6.0, alpha)


def normalized_score(log_probability, length, alpha, form):
    """Returns the score that ranks hypotheses, `log_probability / length_penalty`."""
    return log_probability / length_penalty(length, alpha, form)


def score(
    logits: Tensor,
    labels: Tensor,
    length_penalty: float = 0.6,
    length_normalization: str = "gnmt",
    special_ids: SpecialIds = OUR_SPECIAL_IDS,
) -> tuple[Tensor, Tensor]:
    """Returns the score that a search would give to an output, from a single pass of the model.

    Args:
        logits: `(B, T, V)`, of each token of the output given those before it.
        labels: `(B, T)`, integers: the tokens of the output and the end token, padded at the end,
            such as `SearchResult.ids[:, 0]`.
        length_penalty, length_normalization, special_ids: see `beam_search`.
    Returns:
        `(B,)` float32: summed log-probability divided by the length penalty; 0 if all is padding.
    """
    labels = ops.cast(labels, "int32")
    is_token = ops.not_equal(labels, special_ids.pad)
    known = ops.where(is_token, labels, 0)  # padding of -1 is no place among the logits
    losses = backend.token_cross_entropy(logits, known)  # minus log-probabilities
    losses = ops.where(is_token, losses, 0.0)
    log_probs, lengths = -ops.sum(losses, axis=1), count_tokens(labels, special_ids.pad)
    return normalized_score(log_probs, lengths, length_penalty, length_normalization)
