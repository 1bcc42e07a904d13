"""Examples of a training that are made of text inside a `tf.data` pipeline.

TensorFlow is imported where a function is called, because other batches need none.
Shapes: B batch, S source length, T target length or length of a row.
"""

from typing import TYPE_CHECKING

from keras_transformer.data.ragged_ids import check_tokenizer
from keras_transformer.errors import InputError
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, shift_right
from keras_transformer.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_transformer.tokenizers.tokenizer import Tokenizer


def training_example(
    source: Tensor,
    target: Tensor,
    tokenizer: "Tokenizer",
    target_tokenizer: "Tokenizer | None" = None,
    max_length: int = 128,
) -> "tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]":
    """Turns a batch of sentence pairs into a training example for `model.fit`.

    If the text fits in memory, `TranslationBatches` is faster: it tokenizes the text only once and
    batches pairs of similar length.

    Args:
        source, target: strings `(B,)`.
        tokenizer: tokenizer of the source, and of the target if `target_tokenizer` is None.
        target_tokenizer: tokenizer of the target, or None.
        max_length: maximum tokens per sentence, including the end token; longer ones are cut.
    Returns:
        `({"source_ids", "target_ids"}, labels, weights)`: int32 `(B, S)` and `(B, T)`, int32
        `(B, T)`, float32 `(B, T)`. A weight is 1 / the number of real labels in the batch, or 0 on
        padding.
    Raises:
        ValueError: max_length below 2, or texts of another shape.
        InvalidArgumentError: the numbers of sources and targets differ.

    Example:
        dataset.batch(64).map(lambda source, target: training_example(source, target, tokenizer))
    """
    import tensorflow as tf

    if max_length < 2:
        raise InputError(
            "Expected a max_length of at least 2, for a token and the end token. "
            f"Received: max_length={max_length}."
        )
    source_ids, _ = tokenizer.encode_padded(source, max_length - 1)
    labels, _ = (target_tokenizer or tokenizer).encode_padded(target, max_length - 1)
    tf.debugging.assert_equal(
        tf.shape(source_ids)[0], tf.shape(labels)[0], "Expected as many sources as targets."
    )
    target_ids = shift_right(labels, tf.experimental.numpy)
    weights = tf.cast(labels != PAD_ID, tf.float32)
    weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights))
    return {"source_ids": source_ids, "target_ids": target_ids}, labels, weights


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
        ValueError: max_length too small for a token, texts of another shape, or a tokenizer of
            another library.
        InvalidArgumentError: the numbers of first and second texts differ.

    Example:
        dataset.batch(64).map(lambda first, second: bert_inputs(tokenizer, first, second))
    """
    import tensorflow as tf

    from keras_transformer.tokenizers.graph.base import padded

    check_tokenizer(tokenizer)
    num_special = 2 if second is None else 3
    if max_length <= num_special:
        raise InputError(
            f"Expected a max_length above {num_special}, the number of the special tokens. "
            f"Received: max_length={max_length}."
        )
    num_free = max_length - num_special
    ids, _ = tokenizer.encode_truncated(first, num_free if second is None else num_free // 2)
    ids = tf.concat([tf.fill([ids.nrows(), 1], START_ID), ids], axis=1)
    segment_ids = tf.zeros_like(ids)
    if second is not None:
        others, _ = tokenizer.encode_truncated(second, num_free)
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
