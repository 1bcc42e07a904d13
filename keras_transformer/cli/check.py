"""`keras-transformer check`: what is right and what is wrong with a model."""

import argparse
import json
import pathlib

from keras_transformer.cli import console
from keras_transformer.cli.arguments import check_exists
from keras_transformer.cli.progress import working
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_parallel, check_readable, iterate_lines

SUMMARY = "tell what is right and what is wrong with a model"


def add_arguments(parser):
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "exit code: 0 if all checks held, 1 if one failed, 2 for a mistake in the command"
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a run, an export, or MODULE:FACTORY, a function that returns a Keras model from "
        "token ids to logits, or a keras_transformer.checks.Subject",
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}", metavar="F", help=f"{side} text for the checks of tokenizers and lengths"
        )
    parser.add_argument(
        "--only", metavar="CHECK", nargs="+", help="make only these checks, such as causality"
    )
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")


def run(arguments):
    texts = _texts(arguments)
    if ":" not in arguments.model or pathlib.Path(arguments.model).exists():
        check_exists(arguments.model, "a run or of an export, or MODULE:FACTORY")
    with working("loading the model"):
        console.start_keras()
        from keras_transformer.checks import verdicts
        from keras_transformer.cli.subjects import load_subject

        subject = load_subject(arguments.model, texts, console.say)
    found, width = {}, 0
    if not arguments.json:
        from keras_transformer.checks import CHECKS

        width = max(map(len, CHECKS)) + 2
    for name, verdict in verdicts(subject, arguments.only):
        found[name] = verdict
        if not arguments.json:
            print(f"{verdict.status:16}{name:{width}}{verdict.found}", flush=True)
            if verdict.advice:
                print(f"{'':{16 + width}}{verdict.advice}", flush=True)
    failed = sum(verdict.status == "failed" for verdict in found.values())
    if arguments.json:
        print(json.dumps({name: verdict._asdict() for name, verdict in found.items()}, indent=1))
    else:
        held = sum(verdict.status == "held" for verdict in found.values())
        print(f"{held} held, {failed} failed, {len(found) - held - failed} not applicable")
    return 1 if failed else 0


def _texts(arguments):
    """Returns the lines of the files, a list for each side; None where no file is given."""
    paths = [path for path in (arguments.source, arguments.target) if path is not None]
    if arguments.source is None and paths:
        raise InputError(
            "Expected --source with --target, which is its translation. Received: --target "
            f"{arguments.target} alone. Add --source."
        )
    for path in paths:
        check_readable(path)
    texts = [list(iterate_lines(path)) for path in paths]
    if len(texts) == 2:
        check_parallel(arguments.source, texts[0], arguments.target, texts[1])
    return texts or None
