"""`keras-transformer translate`: one line in, one line out, in order."""

import collections
import contextlib
import hashlib
import itertools
import json
import sys

from keras_transformer.cli import console
from keras_transformer.cli.arguments import (
    add_alignment_head,
    add_decoding,
    add_ensemble,
    add_model,
    add_n_best,
    add_reranking,
    chunks_of,
    files_of,
    load_translator,
    whole_number,
)
from keras_transformer.cli.progress import Progress
from keras_transformer.cli.translated_lines import write_lines
from keras_transformer.config.settings import LARGEST
from keras_transformer.errors import InputError
from keras_transformer.files.checksums import checksum
from keras_transformer.files.resumable import resumable_lines
from keras_transformer.files.text import (
    check_no_input,
    check_readable,
    check_writable,
    count_lines,
    is_regular_file,
    iterate_lines,
    iterate_ready_lines,
)
from keras_transformer.files.version_numbers import PACKAGE_VERSION
from keras_transformer.translation.terminology import Terminology

SUMMARY = "translate text, one line in, one line out"
SAMPLING = ("temperature", "top_k", "top_p", "seed")


def add_arguments(parser):
    add_model(parser, "MODEL", nargs="+")
    parser.add_argument("--input", metavar="F", help="text (default: standard input)")
    parser.add_argument("--output", metavar="F", help="translations (default: standard output)")
    parser.add_argument(
        "--restart",
        action="store_true",
        help="begin the output anew; without it, an interrupted command goes on where it was",
    )
    add_decoding(parser)
    add_ensemble(parser)
    add_reranking(parser)
    add_alignment_head(parser)
    add_n_best(
        parser,
        "maximum number of different translations per line (default: 1); above 1, each is printed "
        "as: number of the input line, tab, score, tab, translation",
    )
    _add_columns(parser)
    _add_steering(parser)
    _add_sampling(parser)


def _add_columns(parser):
    """Adds the flags for what is printed beside a translation."""
    parser.add_argument(
        "--scores", action="store_true", help="print the score and a tab before each translation"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--alignments",
        action="store_const",
        const="words",
        help="print a tab and the pairs of words after each translation, such as 0-0 1-2: number "
        "in the source, number in the translation",
    )
    group.add_argument(
        "--token-alignments",
        action="store_const",
        const="tokens",
        dest="alignments",
        help="the same with pairs of tokens",
    )
    group.add_argument(
        "--json",
        action="store_true",
        help="print an object for each line: its translations with scores, words and alignments, "
        "and the terms and the places of markup that are missing",
    )


def _add_steering(parser):
    """Adds the flags for what translations begin with, contain and keep."""
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
    parser.add_argument(
        "--markup",
        action="store_true",
        help="keep tags, entities, and placeholders such as {0} and %%s, and put them where the "
        "translation has the words that they mark",
    )
    parser.add_argument(
        "--markup-patterns",
        metavar="F",
        help="--markup with more placeholders: a file of regular expressions, one in each line",
    )
    parser.add_argument(
        "--copy-unknown",
        action="store_true",
        help="copy words with characters that the tokenizer does not know, such as an emoji, and "
        "put them where the translation has the words beside them",
    )


def _add_sampling(parser):
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--sample",
        action="store_true",
        help="draw random translations, --n-best of each line, instead of a search for the best",
    )
    group.add_argument(
        "--mbr",
        metavar="N",
        type=whole_number(2, LARGEST),
        help="draw N translations of each line, and print the one that is most like the others by "
        "chrF (minimum Bayes risk)",
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
    files = arguments.input, arguments.prefixes, arguments.terms, arguments.markup_patterns
    for path in files:
        if path is not None:
            check_readable(path)
    if arguments.output is not None:
        check_writable(arguments.output)
    models = [*arguments.model, *filter(None, [arguments.rerank_with])]
    read = arguments.input, *filter(None, [*files[1:], arguments.adapter]), *files_of(models)
    check_no_input(arguments.output, read)
    terms = None if arguments.terms is None else Terminology.read(arguments.terms)
    markup = _markup(arguments)
    translator = load_translator(arguments, of_run=arguments.sample or arguments.mbr)
    if arguments.json or arguments.alignments or markup is not None:
        translator.explain([], [])  # refused at once where there is no explanation
    if markup is not None:
        from keras_transformer.translation.markup_translator import MarkupTranslator

        translator = MarkupTranslator(translator, markup, arguments.copy_unknown)
    work = "" if arguments.output is None else _work(arguments, translator)
    with resumable_lines(arguments.output, work, arguments.restart) as output:
        if output.num_done:
            console.say(f"goes on after line {output.num_done:,}")
        options = _options(arguments, terms, markup, sampling, output.num_done)
        # closed at once if a line cannot be written, so that its bar ends before the error is said
        with contextlib.closing(_answered(arguments, translator, options, output)) as lines:
            write_lines(arguments, lines, terms, markup, output)


def _markup(arguments):
    """Returns the `Markup` of the lines; None where nothing is copied."""
    path = arguments.markup_patterns
    has_markup = arguments.markup or path is not None
    if not has_markup and not arguments.copy_unknown:
        return None
    from keras_transformer.translation.markup import Markup

    return Markup(tags=has_markup) if path is None else Markup.read(path)


def _work(arguments, translator):
    """Returns the checksum of all but the input that decides what is written."""
    names = "n_best", "scores", "json", "alignments", "sample", "mbr", "prefix", "markup"
    options = [getattr(arguments, name) for name in (*names, "copy_unknown", *SAMPLING)]
    for path in (arguments.prefixes, arguments.terms, arguments.markup_patterns):
        regular = path is not None and is_regular_file(path)
        options.append(regular and checksum(path))
    content = json.dumps([PACKAGE_VERSION, translator.checksum(), *options])
    return hashlib.sha256(content.encode()).hexdigest()


def _answered(arguments, translator, options, output):
    """Yields of each line that is not done yet the text, its unknown characters, and two lists.

    These are its translations, and the `Explanation` of each of them, or None.
    """
    texts, first = collections.deque(), output.num_done
    is_shown = arguments.output is not None or not sys.stdout.isatty()
    progress = Progress(is_shown, count_lines(arguments.input), first)
    chunks = _remembered(_chunks(arguments, output), texts, translator)
    options = {**options, "on_batch": progress.ahead}
    answers = output.saved(_answers(arguments, translator, chunks, options))
    is_explained = arguments.json or arguments.alignments
    if is_explained:
        answers = _explained(translator, answers, texts)
    for translations in progress.one_by_one(answers):
        explanations = [None] * len(translations)
        if is_explained:
            translations, explanations = zip(*translations, strict=True)
        yield *texts.popleft(), translations, explanations


def _chunks(arguments, output):
    """Yields lists of the lines that are not done yet."""
    if is_regular_file(arguments.input):
        yield from chunks_of(output.rest(iterate_lines(arguments.input)), output.num_done)
        return
    for lines in iterate_ready_lines(arguments.input):  # whoever writes them may wait for answers
        yield from chunks_of(output.rest(lines))


def _options(arguments, terms, markup, sampling, first):
    """Returns the options of the search, or of the drawing of samples.

    Args:
        first: number of lines that were done before; samples and placeholders depend on it.
    """
    prefixes = arguments.prefix
    if arguments.prefixes is not None:
        prefixes = itertools.islice(iterate_lines(arguments.prefixes), first, None)
    options = {"prefixes": prefixes, "read_ahead": is_regular_file(arguments.input)}
    draws = arguments.sample or arguments.mbr
    if draws or markup is not None:
        options["first"] = first
    return options | (sampling if draws else {"terms": terms})


def _answers(arguments, translator, chunks, options):
    """Returns an iterator of the translations of each chunk, a list for each line."""
    number = arguments.mbr or arguments.n_best
    if not (arguments.sample or arguments.mbr):
        return translator.translate_chunks(chunks, number, **options)
    answers = translator.sample_chunks(chunks, number, **options)
    if not arguments.mbr:
        return answers
    from keras_transformer.translation.reranking import least_risk

    return ([[least_risk(samples)] for samples in chunk] for chunk in answers)


def _explained(translator, answers, texts):
    """Yields the answers with an `Explanation` beside each translation.

    Args:
        texts: deque of the texts of the answers that come, each first in a pair.
    """
    for chunk in answers:
        sources = [text for text, _ in itertools.islice(texts, len(chunk))]
        pairs = [(s, t) for s, each in zip(sources, chunk, strict=True) for t in each]
        sides = [source for source, _ in pairs], [translation.text for _, translation in pairs]
        explanations = iter(translator.explain(*sides))
        yield [[(translation, next(explanations)) for translation in each] for each in chunk]


def _sampling(arguments):
    """Returns the options of sampling that are given; refuses those that do not fit."""
    sampling = {name: value for name in SAMPLING if (value := getattr(arguments, name)) is not None}
    draws = arguments.sample or arguments.mbr is not None
    if sampling and not draws:
        name, value = next(iter(sampling.items()))
        raise InputError(
            "Expected --sample or --mbr with the options of sampling. "
            f"Received: {name}={value}. Add one of them, or leave it out."
        )
    if draws and arguments.terms is not None:
        raise InputError(
            "Expected --terms with a search, which finds the best translation that has them. "
            f"Received: samples and --terms {arguments.terms}. Leave out one of the two."
        )
    if draws and arguments.rerank_with is not None:
        raise InputError(
            "Expected --rerank-with with a search, whose translations it orders. Received: samples "
            f"and --rerank-with {arguments.rerank_with}. Leave out one of the two."
        )
    if arguments.mbr is not None and (arguments.sample or arguments.n_best > 1):
        raise InputError(
            "Expected --mbr alone, which draws samples and prints one of them. Received: "
            f"sample={arguments.sample}, n_best={arguments.n_best}. Leave them out."
        )
    return sampling


def _remembered(chunks, texts, translator):
    """Yields the chunks, and appends each of their texts, with its unknown characters."""
    for chunk in chunks:
        texts.extend(zip(chunk, translator.unknown_characters(chunk), strict=True))
        yield chunk
