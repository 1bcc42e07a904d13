"""Training examples for your own `tf.data` pipeline, created inside the graph.

Shapes: B batch (pairs), S source length, T target length.
"""

from typing import TYPE_CHECKING

from keras_transformer.errors import InputError
from keras_transformer.special_ids import PAD_ID, shift_right
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
        ValueError: max_length is below 2, or texts have another shape.
        InvalidArgumentError: the numbers of sources and targets differ.

    Example:
        dataset.batch(64).map(lambda source, target: training_example(source, target, tokenizer))
    """
    import tensorflow as tf  # here, because other batches do not need it

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
