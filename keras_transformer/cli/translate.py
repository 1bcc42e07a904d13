"""`keras-transformer translate`: one line in, one line out, in order."""

import collections
import sys

from keras_transformer.cli import console
from keras_transformer.cli.arguments import (
    add_decoding,
    add_model,
    add_n_best,
    chunks_of,
    files_of,
    load_translator,
    one_by_one,
)
from keras_transformer.errors import InputError
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
from keras_transformer.translation.terminology import Terminology

SUMMARY = "translate text, one line in, one line out"
SAMPLING = ("temperature", "top_k", "top_p", "seed")
MAX_NAMED = 5
"""Lines without their terms that are named at the end."""


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
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--prefix",
        metavar="TEXT",
        help="begin each translation with this text; a space at its end ends the last word",
    )
    group.add_argument(
        "--prefixes", metavar="F", help="begin each translation with the line of this file"
    )
    parser.add_argument(
        "--terms",
        metavar="F",
        help="file of terms: in each line a term of the source, a tab, and its translation, or "
        "several between tabs, or ! and what a translation must not say",
    )
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--sample",
        action="store_true",
        help="draw random translations, --n-best of each line, instead of a search for the best",
    )
    for name, kind, metavar, meaning in (
        ("--temperature", float, "T", "below 1, probable tokens are preferred (default: 1)"),
        ("--top-k", int, "K", "draw from the K most probable tokens only (default: 0, from all)"),
        ("--top-p", float, "P", "draw from the most probable tokens only, up to this sum of their "
         "probabilities (default: 1)"),
        ("--seed", int, "N", "decides what is drawn (default: 0)"),
    ):  # fmt: skip
        group.add_argument(name, type=kind, metavar=metavar, help=meaning)


def run(arguments):
    sampling = _sampling(arguments)
    files = arguments.input, arguments.prefixes, arguments.terms
    for path in files:
        if path is not None:
            check_readable(path)
    if arguments.output is not None:
        check_writable(arguments.output)
        for path in unfinished(arguments.output):
            console.say(f"warning: an earlier command ended early and left its lines in {path}")
    read = arguments.input, *filter(None, files)
    check_no_input(arguments.output, [*read, *files_of(arguments.model)])
    terms = None if arguments.terms is None else Terminology.read(arguments.terms)
    translator = load_translator(arguments, of_run=arguments.sample)
    show_progress = arguments.output is not None or not sys.stdout.isatty()
    is_file = is_regular_file(arguments.input)
    if is_file:
        chunks = chunks_of(iterate_lines(arguments.input))
    else:  # whoever writes the lines may wait for their translations
        ready = iterate_ready_lines(arguments.input)
        chunks = (chunk for lines in ready for chunk in chunks_of(lines))
    texts = collections.deque()
    if terms is not None:  # their texts are needed again
        chunks = _remembered(chunks, texts)
    prefixes = iterate_lines(arguments.prefixes) if arguments.prefixes else arguments.prefix
    options = {"prefixes": prefixes, "read_ahead": is_file}
    if arguments.sample:
        answers = translator.sample_chunks(chunks, arguments.n_best, **sampling, **options)
    else:
        answers = translator.translate_chunks(chunks, arguments.n_best, terms=terms, **options)
    incomplete, lacking = [], []
    with writing_lines(arguments.output) as write:
        for number, translations in enumerate(one_by_one(answers, show_progress), start=1):
            for translation in translations:
                columns = [" ".join(translation.text.splitlines())]
                if arguments.scores or arguments.n_best > 1:
                    columns.insert(0, f"{translation.score:.4f}")
                if arguments.n_best > 1:
                    columns.insert(0, str(number))
                write("\t".join(columns))
            if translations[0].truncated:
                incomplete.append(number)
            if terms is not None and (
                not_met := terms.not_met(texts.popleft(), translations[0].text)
            ):
                lacking.append(f"line {number} ({', '.join(not_met)})")
    if incomplete:
        console.say(
            f"warning: {len(incomplete)} of {number} lines, or their translations, reached a limit "
            f"of length and are incomplete; the first is line {incomplete[0]}"
        )
    if lacking:
        console.say(
            f"warning: the translations of {len(lacking)} of {number} lines lack a term, or have "
            f"one that is marked by !: {'; '.join(lacking[:MAX_NAMED])}"
            + f" and {len(lacking) - MAX_NAMED} more"
            * (len(lacking) > MAX_NAMED)
        )


def _sampling(arguments):
    """Returns the options of sampling that are given; refuses those that do not fit."""
    sampling = {name: value for name in SAMPLING if (value := getattr(arguments, name)) is not None}
    if sampling and not arguments.sample:
        name, value = next(iter(sampling.items()))
        raise InputError(
            f"Expected --sample with the options of sampling. Received: {name}={value}. "
            "Add --sample, or leave it out."
        )
    if arguments.sample and arguments.terms is not None:
        raise InputError(
            "Expected --terms with a search, which finds the best translation that has them. "
            f"Received: --sample and --terms {arguments.terms}. Leave out one of the two."
        )
    return sampling


def _remembered(chunks, texts):
    """Yields the chunks, and appends each of their texts."""
    for chunk in chunks:
        texts.extend(chunk)
        yield chunk
