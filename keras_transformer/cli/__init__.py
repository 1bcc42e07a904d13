"""The command `keras-transformer`: each subcommand parses and calls one function of the library.

Each has a file with its one-line `SUMMARY`, `add_arguments(parser)` and `run(arguments)`. Keras and
TensorFlow load after the arguments have been checked, so help and usage errors appear at once.
`console.py` lists the exit codes.
"""

from keras_transformer.cli import (
    check,
    clean,
    console,
    evaluate,
    export,
    import_,
    info,
    lexicon,
    plot,
    prepare,
    quickstart,
    serve,
    train,
    translate,
    tune_decoding,
)
from keras_transformer.cli.arguments import Parser
from keras_transformer.files.version_numbers import PACKAGE_VERSION

COMMANDS = {
    "quickstart": quickstart,
    "clean": clean,
    "prepare": prepare,
    "train": train,
    "import": import_,
    "translate": translate,
    "evaluate": evaluate,
    "tune-decoding": tune_decoding,
    "lexicon": lexicon,
    "export": export,
    "serve": serve,
    "plot": plot,
    "check": check,
    "info": info,
}


def main(arguments=None):
    """Runs the command.

    Args:
        arguments: list of str; None: those of the process.

    Returns:
        The exit code.
    Raises:
        SystemExit: with code 2 after a usage error, 0 after `--help`, 143 when terminated.
    """

    def command():
        parsed = command_parser().parse_args(arguments)
        return parsed.run(parsed)

    return console.run(command)


def command_parser():
    parser = Parser(
        prog=console.PROGRAM,
        description="Trains Transformers on parallel text, translates with them, scores them and "
        "exports them for TensorFlow Serving. Files are UTF-8 text with one sentence per line, "
        "compressed if the name ends in .gz, .xz or .zst; an output can be .gz.",
    )
    version = f"{console.PROGRAM} {PACKAGE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        summary = command.SUMMARY
        description = f"{summary[0].upper()}{summary[1:]}."
        added = commands.add_parser(name, help=summary, description=description)
        command.add_arguments(added)
        added.set_defaults(run=command.run)
    return parser
