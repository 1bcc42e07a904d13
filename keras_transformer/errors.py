"""The error of bad input."""


class InputError(ValueError):
    """Input that the package refuses: the message says what it expected, received and suggests.

    The command line answers it with one line and exit code 2; a program may catch `ValueError`.
    """
