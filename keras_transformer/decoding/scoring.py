"""Scores of given translations (forced decoding).

Shapes: B batch, S source length, T target length.
"""

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.length_penalty import normalized_score
from keras_transformer.decoding.single_path import count_pieces
from keras_transformer.special_ids import PAD_ID, START_ID


def score(model, source_ids, labels, length_penalty=0.6):
    """Returns the score that a search gives to a translation, in one pass over the whole of it.

    Args:
        model: `Transformer`, or any model with its call.
        source_ids: `(B, S)`, integers, ended by the end token, padded with 0.
        labels: `(B, T)`, integers: the pieces and the end token of the translation, padded with 0,
            such as `SearchResult.ids[:, 0]`.
        length_penalty: alpha, as of `beam_search`.
    Returns:
        `(B,)` float32: summed log-probability over the length penalty; 0 where there is no piece.
    """
    labels = ops.cast(labels, "int32")
    target_ids = ops.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=START_ID)
    logits = model({"source_ids": source_ids, "target_ids": target_ids}, training=False)
    losses = backend.token_cross_entropy(logits, labels)  # minus log-probabilities
    losses = ops.where(ops.equal(labels, PAD_ID), 0.0, losses)
    return normalized_score(-ops.sum(losses, axis=1), count_pieces(labels), length_penalty)
