"""Attention masks: bool, True = attend. The only place that makes them.

Shapes: B batch, T query length, S key length.
"""

from keras import ops

from keras_transformer.special_ids import PAD_ID


def padding_mask(ids):
    """Returns `(B, S)`, True where `ids` `(B, S)` is a piece and not padding."""
    return ops.not_equal(ids, PAD_ID)


def causal_mask(query_length, key_length=None):
    """Returns `(T, S)`, True where a query may see a key: at its own position or before it.

    With more keys than queries the last query stands at the last key.
    """
    key_length = query_length if key_length is None else key_length
    query_positions = ops.arange(query_length)[:, None] + (key_length - query_length)
    return query_positions >= ops.arange(key_length)[None, :]


def combined_mask(query, key, padding_mask=None, causal=False, attention_mask=None):
    """Joins what is known about who may attend to whom into one mask for the scores.

    Args:
        query, key: `(B, T, ...)` and `(B, S, ...)`, for their lengths.
        padding_mask: `(B, S)`, the keys that are real.
        causal: whether a query sees only its own position and those before it.
        attention_mask: `(B, T, S)` or `(T, S)`.
    Returns:
        Broadcastable to `(B, H, T, S)`, or None where everything may be seen.
    """
    masks = []
    if padding_mask is not None:
        _check_rank("padding_mask", padding_mask, (2,), "(B, S)")
        masks.append(ops.cast(padding_mask, "bool")[:, None, None, :])
    if causal:
        masks.append(causal_mask(ops.shape(query)[1], ops.shape(key)[1])[None, None])
    if attention_mask is not None:
        _check_rank("attention_mask", attention_mask, (2, 3), "(T, S) or (B, T, S)")
        mask = ops.cast(attention_mask, "bool")
        masks.append(mask[None, None] if len(mask.shape) == 2 else mask[:, None])
    if not masks:
        return None
    result = masks[0]
    for mask in masks[1:]:
        result = ops.logical_and(result, mask)
    return result


def check_lengths(key, value, padding_mask=None):
    """Raises `ValueError` where the value or the mask is known not to be as long as the key."""
    if padding_mask is not None:
        _check_rank("padding_mask", padding_mask, (2,), "(B, S)")
    for name, tensor in (("value", value), ("padding_mask", padding_mask)):
        lengths = None if tensor is None else (key.shape[1], tensor.shape[1])
        if lengths is not None and None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(
                f"Expected {name} to be as long as key. Received: {name}.shape="
                f"{tuple(tensor.shape)}, key.shape={tuple(key.shape)}."
            )


def _check_rank(name, mask, ranks, expected):
    if len(mask.shape) not in ranks:
        raise ValueError(
            f"{name} must have shape {expected}. Received: {name}.shape={tuple(mask.shape)}. "
            "Leave the head axis out: it is added where the scores are."
        )
