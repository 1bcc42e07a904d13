"""What Keras's `quantize` finds in layers and models that compute in floating point alone."""


class Unquantized:
    """Refuses `quantize`, which Keras would otherwise skip with a warning, layer by layer.

    The layers read one another's kernels (tied embeddings, decoding), which integers with a scale
    beside them are not.
    """

    def quantize(self, mode=None, **options):
        """Raises ValueError: there are no integer kernels."""
        raise ValueError(
            f"{type(self).__name__} computes in floating point and cannot be quantized. "
            f"Received: mode={mode!r}. Train or load it with dtype='mixed_bfloat16' for half the "
            "bytes; in a model of your own, leave it out by `quantize(filters=...)`."
        )
