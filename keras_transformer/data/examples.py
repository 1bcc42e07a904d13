"""Examples for training, made inside the graph: for a `tf.data` pipeline of the user's own.

Shapes: B batch (pairs), S source length, T target length.
"""

import tensorflow as tf

from keras_transformer.special_ids import PAD_ID, START_ID


def training_example(source, target, tokenizer, target_tokenizer=None, max_length=128):
    """Turns a batch of sentence pairs into what `model.fit` takes, by teacher forcing.

    Where the text fits into memory, `TranslationBatches` is the faster road: it splits the text
    once and batches pairs of like length.

    Args:
        source, target: strings `(B,)`.
        tokenizer: of the source, and of the target where it has none of its own.
        target_tokenizer: or None.
        max_length: most pieces of a side, the end id counted; what is behind them is cut off.
    Returns:
        `({"source_ids", "target_ids"}, labels, weights)`: int32 `(B, S)` and `(B, T)`, int32
        `(B, T)`, float32 `(B, T)`. A weight is 1 / the batch's number of real labels, or 0 on
        padding.

    Example:
        dataset.batch(64).map(lambda source, target: training_example(source, target, tokenizer))
    """
    source_ids, _ = tokenizer.encode_padded(source, max_length - 1)
    labels, _ = (target_tokenizer or tokenizer).encode_padded(target, max_length - 1)
    is_real = labels != PAD_ID
    start = tf.fill([tf.shape(labels)[0], 1], START_ID)
    target_ids = tf.concat([start, tf.where(is_real[:, 1:], labels[:, :-1], PAD_ID)], axis=1)
    weights = tf.cast(is_real, tf.float32)
    weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights))
    return {"source_ids": source_ids, "target_ids": target_ids}, labels, weights
