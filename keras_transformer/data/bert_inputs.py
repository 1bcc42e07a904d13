"""Texts, or pairs of texts, as the input of BERT, made inside the graph.

Shapes: B batch, T length.
"""

import tensorflow as tf

from keras_transformer.errors import InputError
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID


def bert_inputs(tokenizer, first, second=None, max_length=128):
    """Returns the inputs of a `Bert`: class token, first text, separator, second text, separator.

    Args:
        tokenizer: a `Tokenizer`. Its start token is BERT's class token, and its end token BERT's
            separator.
        first: strings `(B,)`.
        second: strings `(B,)`, or None.
        max_length: maximum T. A longer text is cut at its end. Of a pair, the first is cut to half
            of what the special tokens leave, and the second to the rest.
    Returns:
        {"ids": `(B, T)`, "segment_ids": `(B, T)`}, int32, padded with 0 to the longest row. The
        segment is 1 for the second text and its separator, otherwise 0.

    Example:
        dataset.batch(64).map(lambda first, second: bert_inputs(tokenizer, first, second))
    """
    num_special = 2 if second is None else 3
    if max_length <= num_special:
        raise InputError(
            f"Expected a max_length above {num_special}, the number of the special tokens. "
            f"Received: max_length={max_length}."
        )
    ids = tokenizer.encode(first)
    room = max_length - num_special
    end = tf.fill([ids.nrows(), 1], END_ID)
    start = tf.fill([ids.nrows(), 1], START_ID)
    ids = tf.concat([start, ids[:, : room if second is None else room // 2], end], axis=1)
    segment_ids = tf.zeros_like(ids)
    if second is not None:
        others = tokenizer.encode(second)
        rest = max_length - 1 - tf.cast(ids.row_lengths(), tf.int32)
        kept = tf.ragged.range(tf.minimum(tf.cast(others.row_lengths(), tf.int32), rest))
        others = tf.concat([tf.gather(others, kept, batch_dims=1), end], axis=1)
        ids = tf.concat([ids, others], axis=1)
        segment_ids = tf.concat([segment_ids, tf.ones_like(others)], axis=1)
    return {"ids": ids.to_tensor(PAD_ID), "segment_ids": segment_ids.to_tensor(0)}
