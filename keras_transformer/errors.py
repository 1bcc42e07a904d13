"""The error of bad input, and of a library that is not installed."""

import importlib
import types

PACKAGES = {
    "ctranslate2": '"ctranslate2>=4.8,<5" "sentencepiece>=0.2,<0.2.3"',
    "safetensors": "safetensors tokenizers",
    "tokenizers": "safetensors tokenizers",
    "torch": '"torch>=2.6"',
}
"""What pip installs for each library that only a few functions need."""


class InputError(ValueError):
    """Input that the package refuses: the message says what it expected, received and suggests.

    The command line answers it with one line and exit code 2; a program may catch `ValueError`.
    """


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
