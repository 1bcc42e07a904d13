"""The state of a model that decodes step by step.

Shapes: B batch, N hypotheses of each input, H heads.
"""

from typing import Any, NamedTuple


class DecodingState(NamedTuple):
    """Nested lists and dicts of tensors, named by the layers that read them."""

    cache: Any
    """Tensors `(B * N, H, time or 1, ...)`, one row for each hypothesis, which each step updates:
    the keys and values of self-attention, for example. Row b * N + n is hypothesis n of input b.
    Tensors `(B * N, ...)` of rank 1 or 2 have no time, such as the states of recurrent layers."""

    memory: Any
    """Tensors `(B, ...)`, one row for each input, which no step changes: the keys and values of the
    source, for example."""
