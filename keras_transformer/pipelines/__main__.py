"""`python -m keras_transformer.pipelines COMMAND ... [options of Apache Beam]`."""

import argparse
import importlib
import logging
import sys

from keras_transformer.cli import console
from keras_transformer.cli.arguments import Parser
from keras_transformer.errors import import_library


class _Parser(Parser):
    """Leaves what it does not know to Beam, as the options of its runners."""

    parse_known_args = argparse.ArgumentParser.parse_known_args


COMMANDS = {
    "prepare": "tokenize text into shards, for train --prepared",
    "translate": "translate files of text with an export",
}


def main(arguments=None):
    """Runs a pipeline; the arguments, the exit code and what it raises are as for `cli.main`."""
    words = sys.argv[1:] if arguments is None else arguments

    def command():
        if not console.wants_traceback():
            logging.getLogger().setLevel(logging.ERROR)
        import_library("apache_beam")
        parsed, beam_options = _parser(words[0] if words else None).parse_known_args(words)
        parsed.run(parsed, beam_options)

    return console.run(command)


def _parser(chosen):
    """Returns the parser, with the arguments of the chosen command alone: only that is imported."""
    parser = _Parser(
        prog="python -m keras_transformer.pipelines",
        description="Runs a pipeline of Apache Beam, on this machine unless --runner names another "
        "place. All other options are those of Beam and of its runner.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        description = f"{summary[0].upper()}{summary[1:]}."
        added = commands.add_parser(name, help=summary, description=description)
        if name == chosen:
            with console.messages_dropped():  # those of TensorFlow
                pipeline = importlib.import_module(f"keras_transformer.pipelines.{name}")
            pipeline.add_arguments(added)
            added.set_defaults(run=pipeline.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
