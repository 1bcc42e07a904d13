"""The error of bad input, checks of numbers, and the import of a library that may be missing."""

import importlib
import numbers
import types

PACKAGES = {
    "apache_beam": '"apache-beam>=2.77,<3"',
    "ctranslate2": '"ctranslate2>=4.8,<5"',
    "py3langid": '"py3langid>=0.4,<1"',
    "safetensors": "safetensors tokenizers",
    "tokenizers": "safetensors tokenizers",
    "torch": '"torch>=2.6"',
}
"""What pip installs for each library that only a few functions need."""

MESSAGE_CHARACTERS = 2000, 800
"""Characters of a message that are kept at its beginning and at its end."""


class InputError(ValueError):
    """Input that the package refuses: the message says what it expected, received and suggests.

    The command line answers it with one line and exit code 2; a program may catch `ValueError`. Of
    a value that fills pages, the message has the beginning, and the end with the remedy.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


def shortened(message):
    """Returns a message, without its middle if it is too long to be read."""
    first, last = MESSAGE_CHARACTERS
    if len(message) <= first + last:
        return message
    return f"{message[:first]} [...of {len(message):,} characters...] {message[-last:]}"


def check_positive_integers(optional=(), **sizes):
    """Raises `ValueError` unless each size is a whole number of at least 1, or None if optional.

    Args:
        optional: names of the sizes that may be None.
        sizes: the sizes, as keyword arguments.
    """
    for name, size in sizes.items():
        if size is None and name in optional:
            continue
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
            received = ", ".join(f"{name}={size!r}" for name, size in sizes.items())
            raise InputError(f"{name} must be a whole number of at least 1. Received: {received}.")


def check_seed(seed):
    """Raises `ValueError` unless the seed is a whole number from 0 to 2**32 - 1."""
    is_whole = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
    if not is_whole or not 0 <= seed < 2**32:
        raise InputError(
            f"seed must be a whole number from 0 to {2**32 - 1}. Received: seed={seed!r}."
        )


def import_library(name: str, instead: str = "") -> types.ModuleType:
    """Returns a library of `PACKAGES`; raises `InputError` where it is not installed.

    Args:
        name: its name.
        instead: what else can be done, for the message.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"Expected the library {name}. Received: {error}. "
            f"Install it: pip install {PACKAGES[name]}{instead}"
        ) from None
