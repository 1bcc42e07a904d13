"""`keras-transformer evaluate`: BLEU and chrF of a model, or of translations in a file."""

import argparse
import json
import os
import pathlib

from keras_transformer.cli.arguments import (
    add_bleu,
    add_decoding,
    add_ensemble,
    add_model,
    add_reranking,
    files_of,
    given_settings,
    load_translator,
    translations_of,
)
from keras_transformer.config import Config, TrainingConfig
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.files.text import (
    check_no_input,
    check_parallel,
    check_writable,
    iterate_lines,
)

SUMMARY = "score translations with BLEU and chrF"


def add_arguments(parser):
    translations = parser.add_mutually_exclusive_group()
    add_model(translations, "MODEL", nargs="*", default=[])
    translations.add_argument(
        "--hypothesis", metavar="F", help="translations to score, instead of a model's"
    )
    parser.add_argument("--source", metavar="F", help="text that the model translates")
    parser.add_argument(
        "--target", metavar="F", nargs="+", required=True, help="one or more reference translations"
    )
    parser.add_argument(
        "--compare",
        metavar="MODEL",
        nargs="+",
        default=[],
        help="other models, or files of translations: their scores with a paired bootstrap test, "
        "BLEU by length and by tag, and the sentences that differ most",
    )
    add_decoding(parser)
    add_ensemble(parser)
    add_reranking(parser)
    add_bleu(parser)
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.add_argument(
        "--html", metavar="F", help="with --compare: write what it finds as a page, too"
    )
    parser.set_defaults(refuse=parser.error)


def run(arguments):
    _find_model(arguments)
    if arguments.html is not None:
        check_writable(arguments.html)
        if not arguments.compare:
            raise InputError(
                "Expected --compare with --html, which shows systems beside each other. Received: "
                f"--html {arguments.html} alone. Add --compare, or leave it out."
            )
    files = [path for path in arguments.compare if not pathlib.Path(path).is_dir()]
    texts = arguments.source, arguments.hypothesis, arguments.adapter, *arguments.target, *files
    read = [path for path in texts if path is not None]
    check_no_input(None, read)
    if arguments.html is not None:
        models = [*arguments.model, *filter(os.path.isdir, arguments.compare)]
        check_no_input(arguments.html, [*read, *files_of(models)])
    references = [list(iterate_lines(path)) for path in arguments.target]
    for path, lines in zip(arguments.target, references, strict=True):
        if not lines:
            raise InputError(
                f"Expected a reference translation on each line. Received: {path}, which is empty. "
                "Check the name."
            )
    source = None if arguments.source is None else list(iterate_lines(arguments.source))
    for path, lines in zip(arguments.target, references, strict=True):
        if source is not None:
            check_parallel(arguments.source, source, path, lines)
    from keras_transformer.translation.evaluation import bleu, chrf, part_bleu, tag_groups

    tokenize = arguments.tokenize or _tokenizer_of(arguments.model)
    # errors in the references or the tokenizer show up now, not after the translation
    bleu(references[0], references, arguments.lowercase, tokenize, hints=False)
    hypotheses = _hypotheses(arguments, source)
    if arguments.compare:
        _compare(arguments, references, source, hypotheses, tokenize)
        return
    scores = [
        bleu(hypotheses, references, arguments.lowercase, tokenize),
        chrf(hypotheses, references, arguments.lowercase),
    ]
    groups = tag_groups(source or [])
    by_tag = {
        tag: part_bleu(hypotheses, references, rows, arguments.lowercase, tokenize)
        for tag, rows in groups.items()
    }
    if arguments.json:
        values = {s.name: {"score": s.value, "signature": s.signature} for s in scores}
        if by_tag:
            values["BLEU"]["by_tag"] = by_tag
        print(json.dumps(values))
    else:
        print(*scores, sep="\n")
        for tag, value in by_tag.items():
            print(f"BLEU of the {len(groups[tag]):,} lines with {tag}: {value:.2f}")


def _compare(arguments, references, source, hypotheses, tokenize):
    """Prints how other systems compare with the first one."""
    from keras_transformer.translation.comparison import compare

    first = arguments.hypothesis or "+".join(filter(None, [*arguments.model, arguments.adapter]))
    systems = {first: hypotheses}
    for name in arguments.compare:
        if os.path.realpath(name) in map(os.path.realpath, systems):
            raise InputError(f"Expected systems that differ. Received: {name} twice. Name another.")
        is_model = pathlib.Path(name).is_dir()
        given = {"model": [name] if is_model else [], "hypothesis": None if is_model else name}
        given.update(ensemble=None, adapter=None, rerank_with=None)
        systems[name] = _hypotheses(argparse.Namespace(**{**vars(arguments), **given}), source)
    found = compare(systems, references, arguments.lowercase, tokenize, source)
    if arguments.html is not None:
        from keras_transformer.translation.comparison import comparison_page

        with replacing(arguments.html) as partial:
            partial.write_text(comparison_page(found), encoding="utf-8")
    if arguments.json:
        print(json.dumps(found._asdict(), ensure_ascii=False))
        return
    width = max(map(len, systems)) + 2
    print(f"{'':{width}}" + "".join(f"{metric:24}" for metric in found.scores).rstrip())
    for name in systems:
        cells = (each[name] for each in found.scores.values())
        print(f"{name:{width}}" + "".join(f"{_cell(cell):24}" for cell in cells).rstrip())
    groups = {"words of the reference": found.by_length, "tag of the source": found.by_tag}
    for title, scores in groups.items():
        if scores:
            print(f"\nBLEU by the {title}")
        for group, values in scores.items():
            print(f"{group:8}" + "  ".join(f"{name} {value:.2f}" for name, value in values.items()))
    print("\nlines that differ most, with their chrF2")
    for each in found.different:
        print(f"{each['line']}: {each['reference']}")
        for name, value in each["translations"].items():
            print(f"    {value['chrF2']:5.1f}  {name}: {value['text']}")
    print()
    for metric, signature in found.signatures.items():
        print(f"{metric}|{signature}")


def _cell(value):
    test = f" p = {value['p']:.3f}" if "p" in value else ""
    return f"{value['score']:.2f} ± {value['ci']:.2f}{test}"


def _find_model(arguments):
    """Takes MODEL from the end of --target, where argparse leaves it: the directories there."""
    if not arguments.model and arguments.hypothesis is None:
        target, models = arguments.target, []
        while target and pathlib.Path(target[-1]).is_dir():
            *target, last = target
            models.insert(0, last)
        if not (target and models):
            arguments.refuse(
                "one of the arguments MODEL --hypothesis is required; everything that follows "
                f"--target is references: {' '.join(arguments.target)}"
            )
        arguments.target, arguments.model = target, models


def _tokenizer_of(models):
    """Returns the tokenizer with which the BLEU of the first run was computed in its training."""
    if models and (settings := pathlib.Path(models[0], "config.yaml")).exists():
        return Config.load(settings).training.bleu_tokenizer
    return TrainingConfig().bleu_tokenizer


def _hypotheses(arguments, source):
    """Returns the translations to score, from a file or a model; `source`: lines, or None."""
    if arguments.hypothesis is not None:
        names = "checkpoint", "ensemble", "adapter", "rerank_with", "source"
        flags = given_settings(arguments, "decoding") or any(map(vars(arguments).get, names))
        if flags and not arguments.compare:  # else they may be of another system
            raise InputError(
                "Expected a model for --source and the flags of the search. "
                f"Received: --hypothesis {arguments.hypothesis}. Leave these flags out."
            )
        return list(iterate_lines(arguments.hypothesis))
    if source is None:
        raise InputError(
            "Expected the text for the model to translate. "
            f"Received: {' '.join(arguments.model)} without --source. Add --source F."
        )
    return translations_of(load_translator(arguments), source)
