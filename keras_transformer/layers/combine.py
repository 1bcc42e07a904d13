"""Two ways to combine embeddings with position encodings: addition and concatenation.

Shapes: B batch, T length, D width of the input, P width of the encoding.
"""

from keras import ops

from keras_transformer.errors import InputError

COMBINATIONS = ("add", "concatenate")


def check_combination(combine, width):
    """Raises `ValueError` unless `combine` is known and allows this `width` (P, or None)."""
    if combine not in COMBINATIONS:
        raise InputError(f"combine must be one of {COMBINATIONS}. Received: combine={combine!r}.")
    if width is not None and (combine == "add" or width < 1):
        raise InputError(
            "width must be at least 1, and is only for combine='concatenate': an encoding that is "
            f"added is as wide as the input. Received: combine={combine!r}, width={width}."
        )


def combined(x, encoding, combine):
    """Returns `x` `(B, T, D)` plus `encoding` `(T, D)`, or followed by `encoding` `(T, P)`."""
    if len(x.shape) != 3:
        raise InputError(f"x must have shape (B, T, D). Received: x.shape={tuple(x.shape)}.")
    if combine == "add":
        return x + encoding
    shape = (ops.shape(x)[0], *ops.shape(encoding))
    return ops.concatenate([x, ops.broadcast_to(encoding, shape)], axis=-1)


def combined_shape(shape, combine, width):
    """Returns the shape of `combined` for an input of `shape` and an encoding of `width`, or D."""
    extra = 0 if combine == "add" else width or shape[-1]
    return (*shape[:-1], shape[-1] + extra)
