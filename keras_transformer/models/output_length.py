"""The maximum length of a translation.

Shapes: B batch, S source length.
"""

from keras import ops

from keras_transformer.special_ids import END_ID, PAD_ID


def output_limits(source_ids, max_length):
    """Returns the limit of each output, and the largest limit that a batch of width S can have.

    Args:
        source_ids: `(B, S)` int32, each row ended by the end token and padded with 0.
        max_length: int, maximum tokens of any output.
    Returns:
        `(limits, longest)`. `limits`, `(B,)` int32: min(2 s + 10, max_length) for a source of s
        tokens, where s does not include the end token, but the limit does. `longest`:
        min(2 S + 10, max_length), an int if S is static, otherwise an int scalar.
    """
    is_token = ops.not_equal(source_ids, PAD_ID) & ops.not_equal(source_ids, END_ID)
    limits = 2 * ops.sum(ops.cast(is_token, "int32"), axis=1) + 10
    limits = ops.minimum(limits, max_length)
    width = 2 * ops.shape(source_ids)[1] + 10  # not from the limits: JAX needs it while it traces
    if isinstance(width, int):
        return limits, min(width, max_length)
    return limits, ops.minimum(width, max_length)
