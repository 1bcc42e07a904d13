"""Attention masks: bool, True = attend. The only place that makes them.

Shapes: B batch, T query length, S key length.
"""

from keras import ops
from keras.src.backend import get_keras_mask  # no public name has it; layers must not lose masks

from keras_transformer.special_ids import PAD_ID


def padding_mask(ids):
    """Returns `(B, S)`, True where `ids` `(B, S)` is a piece and not padding."""
    return ops.not_equal(ids, PAD_ID)


def known_padding_mask(given, *tensors):
    """Returns the padding mask that was given or, where none was, the one that Keras keeps.

    `keras.layers.Embedding(mask_zero=True)` and `keras.layers.Masking` leave a mask with their
    output, which layers hand on. Keras itself would tell a layer that of an only argument.

    Args:
        given: bool `(B, S)`, or None.
        tensors: `(B, S, ...)`, in which a position is padding that is padding in any of them.
    Returns:
        bool `(B, S)`, or None where nothing is known.
    """
    if given is not None:
        return given
    mask = None
    for tensor in tensors:
        other = get_keras_mask(tensor)
        if other is not None and other is not mask:
            mask = other if mask is None else ops.logical_and(mask, other)
    return mask


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


def check_lengths(query, key, value, padding_mask=None, attention_mask=None):
    """Raises `ValueError` where sentences or lengths, as far as they are known, do not fit.

    Args:
        query, key, value: `(B, T, ...)`, `(B, S, ...)` and `(B, S, ...)`.
        padding_mask: `(B, S)`, or `(1, S)` for all sentences.
        attention_mask: `(T, S)` or `(B, T, S)`, where a 1 stands for any B or T.
    """
    batch, num_queries, num_keys = query.shape[0], query.shape[1], key.shape[1]
    expected = [("key", key, (batch, num_keys)), ("value", value, (batch, num_keys))]
    if padding_mask is not None:
        _check_rank("padding_mask", padding_mask, (2,), "(B, S)")
        expected.append(("padding_mask", padding_mask, (batch, num_keys)))
    if attention_mask is not None:
        _check_rank("attention_mask", attention_mask, (2, 3), "(T, S) or (B, T, S)")
        sizes = (batch, num_queries, num_keys)[-len(attention_mask.shape) :]
        expected.append(("attention_mask", attention_mask, sizes))
    for name, tensor, sizes in expected:
        any_size = (1,) if name.endswith("mask") else ()
        for size, found in zip(sizes, tensor.shape, strict=False):
            if None not in (size, found) and found != size and found not in any_size:
                raise ValueError(
                    f"Expected {name} to begin with the sizes {sizes}, of {batch} sentences, "
                    f"{num_queries} queries and {num_keys} keys. Received: {name}.shape="
                    f"{tuple(tensor.shape)}, query.shape={tuple(query.shape)}, "
                    f"key.shape={tuple(key.shape)}."
                )


def _check_rank(name, mask, ranks, expected):
    if len(mask.shape) not in ranks:
        raise ValueError(
            f"{name} must have shape {expected}. Received: {name}.shape={tuple(mask.shape)}. "
            "Leave the head axis out: it is added where the scores are."
        )
