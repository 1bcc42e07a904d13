"""The parser of the command line, the types of its flags, and flags made from settings."""

import argparse
import contextlib

from keras_transformer.config.settings import plain_type, settings
from keras_transformer.config.yaml import yaml_word


class Parser(argparse.ArgumentParser):
    """Prints a usage error as one line, and does not accept abbreviated options.

    Attributes:
        default_command: the subcommand that is meant where the first argument names none, or None.
    """

    default_command = None

    def __init__(self, **arguments):
        super().__init__(allow_abbrev=False, **arguments)

    def parse_known_args(self, args=None, namespace=None):
        if self.default_command is not None and args:
            (commands,) = self._subparsers._group_actions
            if args[0] not in (*commands.choices, "-h", "--help"):
                args = [self.default_command, *args]
        return super().parse_known_args(args, namespace)

    def print_help(self, file=None):
        # argparse's own method ignores an error of writing
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (`{self.prog} --help` shows the usage)\n")


def whole_number(least, most):
    """Returns the argparse type of a whole number from `least` to `most`."""

    def number(text):
        with contextlib.suppress(ValueError):
            if least <= int(text) <= most:
                return int(text)
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {least} to {most}; received: {text}"
        )

    return number


def add_settings(parser, group_class, metavar, names, show_default=False):
    """Adds a flag for each of the settings `names`; its help is the setting's meaning."""
    for name in names:
        setting = settings(group_class)[name]
        kind = plain_type(setting.annotation)
        meaning = setting.meaning[0].lower() + setting.meaning[1:].removesuffix(".")
        if show_default:
            meaning = f"{meaning} (default: {yaml_word(setting.default)})"
        arguments = {"dest": f"{group_class.GROUP}.{name}", "help": meaning.replace("%", "%%")}
        if kind is bool:
            arguments.update(action="store_const", const=True)
        else:
            arguments.update(type=kind, metavar=metavar)
        parser.add_argument(f"--{name.replace('_', '-')}", **arguments)


def given_settings(arguments, group):
    """Returns the settings of a group that are given as flags: dict from name to value."""
    return {
        name.partition(".")[2]: value
        for name, value in vars(arguments).items()
        if name.startswith(f"{group}.") and value is not None
    }
