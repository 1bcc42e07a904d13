"""The numbers of an export's versions, as TensorFlow Serving reads them from directory names."""

HIGHEST_VERSION = 2**63 - 1
"""The highest number that fits into the messages of TensorFlow Serving."""


def version_number(text):
    """Returns the version number that a text stands for, or None where it is no such number."""
    digits = text.lstrip("0") or "0"
    is_number = text.isascii() and text.isdecimal() and len(digits) <= len(str(HIGHEST_VERSION))
    return int(digits) if is_number and int(digits) <= HIGHEST_VERSION else None
