"""`keras-transformer clean`: mends sentence pairs, and leaves out the bad ones."""

import itertools
import json
import math
import os
import sys

from keras_transformer.cli import console
from keras_transformer.cli.arguments import check_exists, chunks_of, number, whole_number
from keras_transformer.cli.progress import Progress
from keras_transformer.config.settings import LARGEST
from keras_transformer.errors import InputError
from keras_transformer.files.text import (
    check_no_input,
    check_readable,
    check_writable,
    count_lines,
    iterate_lines,
    written_lines,
)

SUMMARY = "mend parallel text, and leave out the pairs that are probably wrong"
FILTERS = (
    *("blank", "control", "long", "ratio", "identical", "tags", "digits", "swapped"),
    *("untranslated", "script", "language", "leaked", "duplicate"),
)
MENDERS = "entities", "invisible", "unicode", "spaces"
"""As in `data.pair_filters`, which imports NumPy."""


def add_arguments(parser):
    for prefix, what in (("", ""), ("output-", " that is kept")):
        for side in ("source", "target"):
            parser.add_argument(f"--{prefix}{side}", metavar="F", help=f"{side} text{what}")
        parser.add_argument(
            f"--{prefix}tsv",
            metavar="F",
            help=f"instead, pairs{what}: source and target in two columns separated by a tab; "
            f"- for standard {'output' if prefix else 'input'}",
        )
    parser.add_argument(
        "--dry-run", action="store_true", help="only count; without it, an output is needed"
    )
    parser.add_argument(
        "--filters",
        metavar="A,B",
        help=f"filters to use, some of {', '.join(FILTERS)} (default: all, but language needs "
        "--languages and leaked needs --against)",
    )
    parser.add_argument(
        "--mend",
        metavar="A,B",
        help=f"what to mend, some of {', '.join(MENDERS)}, or none (default: all)",
    )
    parser.add_argument(
        "--max-length",
        metavar="N",
        type=whole_number(1, LARGEST),
        help="maximum characters of a side (default: 1000)",
    )
    parser.add_argument(
        "--max-ratio",
        metavar="R",
        type=number("a number above 1", lambda ratio: 1 < ratio < math.inf),
        help="maximum ratio of the lengths of the sides, relative to that of the text (default: 3)",
    )
    parser.add_argument(
        "--languages",
        metavar="LANGUAGE",
        nargs=2,
        help="language of the source and of the target, such as en de; needs the library py3langid",
    )
    parser.add_argument(
        "--against",
        metavar="F",
        nargs="+",
        default=[],
        help="validation and test text, of either language or in two columns, that must not be in "
        "the output",
    )
    parser.add_argument(
        "--score-with",
        metavar="RUN",
        help="leave out pairs that score low by the lexicon of a run, or by its model if it has "
        "no lexicon",
    )
    parser.add_argument(
        "--min-score",
        metavar="X",
        type=number("a number", math.isfinite),
        help="lowest score that is kept (default: what 5 %% of the first pairs do not reach)",
    )
    parser.add_argument(
        "--rejected",
        metavar="F",
        help="write what is left out: the filter, a tab, the source, a tab, the target",
    )
    parser.add_argument("--report", metavar="F", help="write the counts and examples as JSON")


def run(arguments):
    text = _files(arguments, "")
    kept = _files(arguments, "output_", or_none=arguments.dry_run)
    to_standard_output = None in kept
    read = [*text, *arguments.against]
    for path in read:
        check_readable(path)
    others = (path for path in (arguments.rejected, arguments.report) if path is not None)
    written = [*kept, *others]
    for path in written:
        check_writable(path)
        check_no_input(path, read)
    if len({os.path.realpath(path or "/dev/stdout") for path in written}) < len(written):
        names = ", ".join(path or "standard output" for path in written)
        raise InputError(f"Expected outputs that differ. Received: {names}. Name another file.")
    from keras_transformer.data.cleaning import CleaningReport

    cleaner, report = _cleaner(arguments), CleaningReport()
    with written_lines(*written) as writers:
        writer_of = dict(zip(written, writers, strict=True))
        chunks = chunks_of(cleaner.clean(_pairs(text)))
        show_progress = not to_standard_output or not sys.stdout.isatty()
        for pair in Progress(show_progress, count_lines(text[0])).one_by_one(chunks):
            report.add(pair)
            if not pair.reason:
                sides = pair.source, pair.target
                lines = [_row(*sides)] if len(kept) == 1 else sides
                for path, line in zip(kept, lines, strict=False):  # a dry run has no files
                    writer_of[path](line)
            elif arguments.rejected is not None:
                writer_of[arguments.rejected](_row(pair.reason, pair.source, pair.target))
        if not arguments.dry_run:
            report.check_some_kept()
        if arguments.report is not None:
            content = {**report.as_dict(), "min_score": cleaner.min_score}
            writer_of[arguments.report](json.dumps(content, ensure_ascii=False, indent=2))
    if not cleaner.known.odds:
        console.say("both sides have the same words, so swapped and untranslated left out nothing")
    console.print_result(report, "the text is clean", sys.stderr if to_standard_output else None)


def _files(arguments, prefix, or_none=False):
    """Returns the files of two sides, or the one with both, that options with a prefix name.

    Args:
        or_none: whether there must be none.
    Returns:
        A list of paths; None is standard input or output.
    """
    names = [f"{prefix}{name}" for name in ("source", "target", "tsv")]
    paths = [getattr(arguments, name) for name in names]
    given = [path is not None for path in paths]
    flags = [f"--{name}".replace("_", "-") for name in names]
    if given not in ([[False] * 3] if or_none else [[True, True, False], [False, False, True]]):
        raise InputError(
            f"Expected {flags[0]} and {flags[1]}, or {flags[2]}. Received: "
            + ", ".join(f"{name}={path}" for name, path in zip(names, paths, strict=True))
            + ". Give two files, or one of two columns"
            + (", or only count, with --dry-run alone." if prefix else ".")
        )
    if paths[2] == "-":
        return [None]
    for path in paths[:2]:
        if path == "-":
            raise InputError(
                f"Expected {flags[2]} for pairs from a pipe or to one. Received: -, for a file of "
                f"one side. Give {flags[2]} -, or name a file."
            )
    return [path for path in paths if path is not None]


def _row(*columns):
    return "\t".join(column.replace("\t", " ") for column in columns)


def _pairs(paths):
    """Yields the pairs of two files, or of one with two columns, of which others are ignored."""
    if len(paths) == 1:
        for line in iterate_lines(*paths):
            columns = [*line.split("\t"), ""]  # a line of one column has a blank side
            yield columns[0], columns[1]
        return
    lines = itertools.zip_longest(*map(iterate_lines, paths))
    for count, pair in enumerate(lines):
        if None in pair:
            shorter, longer = paths if pair[0] is None else reversed(paths)
            raise InputError(
                f"Expected as many target lines as source lines. Received: {shorter}: {count} "
                f"lines, {longer}: more. Line i of each file must belong to the same sentence."
            )
        yield pair


def _cleaner(arguments):
    from keras_transformer.data.cleaning import Cleaner
    from keras_transformer.data.pair_filters import HeldOut, Known

    known = Known(languages=arguments.languages or ())
    if arguments.max_length is not None:
        known.max_length = arguments.max_length
    if arguments.max_ratio is not None:
        known.max_ratio = arguments.max_ratio
    if arguments.against:
        lines = itertools.chain.from_iterable(map(iterate_lines, arguments.against))
        known.held_out = HeldOut(side for line in lines for side in line.split("\t")[:2])
    if arguments.score_with is None and arguments.min_score is not None:
        raise InputError(
            "Expected --score-with with --min-score. Received: "
            f"min_score={arguments.min_score} alone. Add --score-with RUN, or leave it out."
        )
    names = None if arguments.filters is None else arguments.filters.split(",")
    menders = None if arguments.mend is None else arguments.mend.split(",")
    menders = [] if menders == ["none"] else menders
    Cleaner(names, menders, known)  # before Keras starts
    score = None if arguments.score_with is None else _score_of(arguments.score_with)
    return Cleaner(names, menders, known, score, arguments.min_score)


def _score_of(path):
    """Returns the function that scores a list of texts and a list of their translations."""
    check_exists(path, "a run")
    console.start_keras(to_search=True)
    from keras_transformer.data.ragged_ids import RaggedIds
    from keras_transformer.runs.run import Run
    from keras_transformer.translation.lexicon import load_lexicon
    from keras_transformer.translation.loading import load

    run = Run(path)
    if not run.lexicon_path.exists():
        return load(path).score
    lexicon, tokenizers = load_lexicon(path), run.load_tokenizers(run.load_config())
    return lambda *sides: lexicon.coverage(
        *(RaggedIds.encode(*each).texts() for each in zip(tokenizers, sides, strict=True))
    )
