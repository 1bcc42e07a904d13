"""What the layers ask of their sizes."""

import numbers


def check_whole_numbers(**sizes):
    """Raises `ValueError` unless each size is a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
            received = ", ".join(f"{name}={size!r}" for name, size in sizes.items())
            raise ValueError(f"{name} must be a whole number of at least 1. Received: {received}.")
