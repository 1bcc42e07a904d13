"""How a position's encoding joins the embedding: added to it, or behind it.

Shapes: B batch, T length, D width of the input, P width of the encoding.
"""

from keras import ops

COMBINATIONS = ("add", "concatenate")


def check_combination(combine, width):
    """Raises `ValueError` unless `combine` is known and `width` (P, or None) belongs to it."""
    if combine not in COMBINATIONS:
        raise ValueError(f"combine must be one of {COMBINATIONS}. Received: combine={combine!r}.")
    if width is not None and (combine == "add" or width < 1):
        raise ValueError(
            "width must be at least 1 and is for combine='concatenate': what is added is as wide "
            f"as the input. Received: combine={combine!r}, width={width}."
        )


def combined(x, encoding, combine):
    """Returns `x` `(B, T, D)` plus `encoding` `(T, D)`, or with `(T, P)` behind it."""
    if len(x.shape) != 3:
        raise ValueError(
            f"Expected vectors of positions, (B, T, D). Received: x.shape={tuple(x.shape)}."
        )
    if combine == "add":
        return x + encoding
    shape = (ops.shape(x)[0], *ops.shape(encoding))
    return ops.concatenate([x, ops.broadcast_to(encoding, shape)], axis=-1)
