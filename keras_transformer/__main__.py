"""The command `keras-transformer`, and `python -m keras_transformer`.

Nothing is imported here but what Python has loaded already, so that an interruption is answered
from the first moment; all that takes time loads in `main`.
"""

import sys


def main():
    """Runs the command with the arguments of the process, and returns its exit code."""
    try:
        from keras_transformer import cli

        return cli.main()
    except KeyboardInterrupt:
        print("keras-transformer: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
