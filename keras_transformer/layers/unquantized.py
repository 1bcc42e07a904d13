"""A mix-in for layers and models that cannot be quantized."""

from typing import Any

from keras_transformer.errors import InputError


class Unquantized:
    """Refuses `quantize`. Keras would only warn, and skip such layers one by one.

    These layers read one another's kernels (tied embeddings, decoding), which works with floating
    point kernels but not with integer kernels and their scales.
    """

    def quantize(self, mode: str | None = None, **options: Any) -> None:
        """Raises ValueError: there are no integer kernels."""
        raise InputError(
            f"{type(self).__name__} computes in floating point and cannot be quantized. "
            f"Received: mode={mode!r}. Train or load it with dtype='mixed_bfloat16' for half the "
            "bytes; in a model of your own, leave it out by `quantize(filters=...)` of Keras 3.15."
        )
