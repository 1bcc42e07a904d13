"""The command `keras-transformer`, and `python -m keras_transformer`.

Only what Python has loaded already is imported here, so that Ctrl-C ends the program cleanly from
the start. Everything that takes time loads in `main`.
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
