"""Attention masks: bool, True = attend. All masks are made here.

Shapes: B batch, T query length, S key length, H heads.
"""

import functools

from keras import ops
from keras.src.backend import get_keras_mask  # Keras has no public function that reads a mask

from keras_transformer.errors import InputError
from keras_transformer.special_ids import PAD_ID
from keras_transformer.types import Tensor


def padding_mask(ids: Tensor) -> Tensor:
    """Returns `(B, S)`, True where `ids` `(B, S)` holds a token and not padding."""
    return ops.not_equal(ids, PAD_ID)


def known_padding_mask(given, *tensors):
    """Returns the given padding mask or, if there is none, the one that Keras attached to tensors.

    `keras.layers.Embedding(mask_zero=True)` and `keras.layers.Masking` attach a mask to their
    output, which later layers pass on. Keras itself passes it to `call` only under names of its
    own, such as `mask` and `key_mask`.

    Args:
        given: bool `(B, S)`, or None.
        tensors: `(B, S, ...)`. A position that is padding in one of them is padding in the result.
    Returns:
        bool `(B, S)`, or None if there is no mask.
    """
    if given is not None:
        return given
    mask = None
    for tensor in tensors:
        other = get_keras_mask(tensor)
        if other is not None and other is not mask:
            mask = other if mask is None else ops.logical_and(mask, other)
    return mask


def causal_mask(query_length: int, key_length: int | None = None) -> Tensor:
    """Returns `(T, S)`, True where a query may see a key: at its own position or before it.

    If there are more keys than queries, the last query has the position of the last key.
    """
    key_length = query_length if key_length is None else key_length
    query_positions = ops.arange(query_length)[:, None] + (key_length - query_length)
    return query_positions >= ops.arange(key_length)[None, :]


def combined_mask(
    query: Tensor,
    key: Tensor,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    attention_mask: Tensor | None = None,
) -> Tensor | None:
    """Combines the padding mask, the causal mask and the attention mask into one for the scores.

    Args:
        query, key: `(B, T, ...)` and `(B, S, ...)`; only their lengths are used.
        padding_mask: `(B, S)`, True where a key is real.
        causal: whether a query sees only its own position and those before it.
        attention_mask: `(B, T, S)` or `(T, S)`.
    Returns:
        A mask that broadcasts to `(B, H, T, S)`, or None if nothing is masked.
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
    return functools.reduce(ops.logical_and, masks) if masks else None


def check_lengths(query, key, value, padding_mask=None, attention_mask=None):
    """Raises `ValueError` if static batch sizes or lengths do not match.

    Args:
        query, key, value: `(B, T, ...)`, `(B, S, ...)` and `(B, S, ...)`.
        padding_mask: `(B, S)`, or `(1, S)` for all sentences.
        attention_mask: `(T, S)` or `(B, T, S)`; a size of 1 broadcasts.
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
                raise InputError(
                    f"Expected {name} to begin with the sizes {sizes}, of {batch} sentences, "
                    f"{num_queries} queries and {num_keys} keys. Received: {name}.shape="
                    f"{tuple(tensor.shape)}, query.shape={tuple(query.shape)}, "
                    f"key.shape={tuple(key.shape)}."
                )


def _check_rank(name, mask, ranks, expected):
    if len(mask.shape) not in ranks:
        raise InputError(
            f"{name} must have shape {expected}. Received: {name}.shape={tuple(mask.shape)}. "
            "Leave the head axis out: the attention layer adds it."
        )
