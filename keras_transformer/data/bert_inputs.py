"""Texts, or pairs of texts, as the input of BERT, made inside the graph.

Shapes: B batch, T length.
"""

from typing import TYPE_CHECKING

from keras_transformer.errors import InputError
from keras_transformer.special_ids import END_ID, START_ID
from keras_transformer.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_transformer.tokenizers.tokenizer import Tokenizer


def bert_inputs(
    tokenizer: "Tokenizer", first: Tensor, second: Tensor | None = None, max_length: int = 128
) -> "dict[str, tf.Tensor]":
    """Returns the inputs of a `Bert`: class token, first text, separator, second text, separator.

    Args:
        tokenizer: a `Tokenizer`. Its start token is BERT's class token, and its end token BERT's
            separator.
        first: strings `(B,)`.
        second: strings `(B,)`, or None.
        max_length: maximum T. A longer text is cut at its end. In a pair, the first text may have
            half of the tokens beside the special ones, and the second the rest.
    Returns:
        {"ids": `(B, T)`, "segment_ids": `(B, T)`}, int32, padded with 0 to the longest row; T is 1
        when B is 0. The segment is 1 for the second text and its separator, otherwise 0.
    Raises:
        ValueError: max_length is too small for a token, or texts have another shape.
        InvalidArgumentError: the numbers of first and second texts differ.

    Example:
        dataset.batch(64).map(lambda first, second: bert_inputs(tokenizer, first, second))
    """
    import tensorflow as tf  # here, because other batches do not need it

    from keras_transformer.tokenizers.tokenizer import padded

    num_special = 2 if second is None else 3
    if max_length <= num_special:
        raise InputError(
            f"Expected a max_length above {num_special}, the number of the special tokens. "
            f"Received: max_length={max_length}."
        )
    room = max_length - num_special
    ids, _ = tokenizer.encode_truncated(first, room if second is None else room // 2)
    ids = tf.concat([tf.fill([ids.nrows(), 1], START_ID), ids], axis=1)
    segment_ids = tf.zeros_like(ids)
    if second is not None:
        others, _ = tokenizer.encode_truncated(second, room)
        tf.debugging.assert_equal(
            ids.nrows(), others.nrows(), "Expected as many first as second texts."
        )
        rest = max_length - tf.cast(ids.row_lengths(), tf.int32)  # with the separator
        lengths = tf.minimum(tf.cast(others.row_lengths(), tf.int32), rest)
        others = tf.gather(others, tf.ragged.range(lengths - 1), batch_dims=1)
        others = tf.concat([others, tf.fill([others.nrows(), 1], END_ID)], axis=1)
        ids = tf.concat([ids, others], axis=1)
        segment_ids = tf.concat([segment_ids, tf.ones_like(others)], axis=1)
    return {"ids": padded(ids), "segment_ids": padded(segment_ids)}
