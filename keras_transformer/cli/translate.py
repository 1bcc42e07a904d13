"""`keras-transformer translate`: one line in, one line out, in order."""

import sys

from keras_transformer.cli import console
from keras_transformer.cli.arguments import (
    add_decoding,
    add_model,
    add_n_best,
    files_of,
    load_translator,
    translations_of,
    translations_of_ready,
)
from keras_transformer.files.atomic import unfinished
from keras_transformer.files.text import (
    check_no_input,
    check_readable,
    check_writable,
    is_regular_file,
    iterate_lines,
    iterate_ready_lines,
    writing_lines,
)

SUMMARY = "translate text, one line in, one line out"


def add_arguments(parser):
    add_model(parser, "MODEL")
    parser.add_argument("--input", metavar="F", help="text (default: standard input)")
    parser.add_argument("--output", metavar="F", help="translations (default: standard output)")
    add_decoding(parser)
    add_n_best(
        parser,
        "maximum number of different translations per line (default: 1); above 1, each is printed "
        "as: number of the input line, tab, score, tab, translation",
    )
    parser.add_argument(
        "--scores", action="store_true", help="print the score and a tab before each translation"
    )


def run(arguments):
    if arguments.input is not None:
        check_readable(arguments.input)
    if arguments.output is not None:
        check_writable(arguments.output)
        for path in unfinished(arguments.output):
            console.say(f"warning: an earlier command ended early and left its lines in {path}")
    check_no_input(arguments.output, [arguments.input, *files_of(arguments.model)])
    translator = load_translator(arguments)
    show_progress = arguments.output is not None or not sys.stdout.isatty()
    if is_regular_file(arguments.input):
        lines = iterate_lines(arguments.input)
        answers = translations_of(translator, lines, arguments.n_best, show_progress)
    else:
        ready = iterate_ready_lines(arguments.input)
        answers = translations_of_ready(translator, ready, arguments.n_best, show_progress)
    incomplete = []
    with writing_lines(arguments.output) as write:
        for number, translations in enumerate(answers, start=1):
            for translation in translations:
                columns = [" ".join(translation.text.splitlines())]
                if arguments.scores or arguments.n_best > 1:
                    columns.insert(0, f"{translation.score:.4f}")
                if arguments.n_best > 1:
                    columns.insert(0, str(number))
                write("\t".join(columns))
            if translations[0].truncated:
                incomplete.append(number)
    if incomplete:
        console.say(
            f"warning: {len(incomplete)} of {number} lines, or their translations, reached a limit "
            f"of length and are incomplete; the first is line {incomplete[0]}"
        )
