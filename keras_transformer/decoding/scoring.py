"""Scores of given outputs (forced decoding).

Shapes: B batch, T output length, V vocabulary.
"""

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.length_penalty import normalized_score
from keras_transformer.decoding.search_result import count_tokens
from keras_transformer.special_ids import OUR_SPECIAL_IDS, SpecialIds
from keras_transformer.types import Tensor


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
