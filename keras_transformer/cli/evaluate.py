"""`keras-transformer evaluate`: BLEU and chrF of a model, or of translations in a file."""

import json
import pathlib

from keras_transformer.cli.arguments import (
    add_bleu,
    add_decoding,
    add_model,
    given_settings,
    load_translator,
    translations_of,
)
from keras_transformer.config import Config, TrainingConfig
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_no_input, check_parallel, iterate_lines

SUMMARY = "score translations with BLEU and chrF"


def add_arguments(parser):
    translations = parser.add_mutually_exclusive_group()
    add_model(translations, "MODEL", nargs="?")
    translations.add_argument(
        "--hypothesis", metavar="F", help="translations to score, instead of a model's"
    )
    parser.add_argument("--source", metavar="F", help="text that the model translates")
    parser.add_argument(
        "--target", metavar="F", nargs="+", required=True, help="one or more reference translations"
    )
    add_decoding(parser)
    add_bleu(parser)
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.set_defaults(refuse=parser.error)


def run(arguments):
    _find_model(arguments)
    texts = arguments.source, arguments.hypothesis, *arguments.target
    check_no_input(None, [path for path in texts if path is not None])
    references = [list(iterate_lines(path)) for path in arguments.target]
    for path, lines in zip(arguments.target, references, strict=True):
        if not lines:
            raise InputError(
                f"Expected a reference translation on each line. Received: {path}, which is empty. "
                "Check the name."
            )
    from keras_transformer.translation.evaluation import bleu, chrf

    tokenize = arguments.tokenize or _tokenizer_of(arguments.model)
    # errors in the references or the tokenizer show up now, not after the translation
    bleu(references[0], references, arguments.lowercase, tokenize, hints=False)
    hypotheses = _hypotheses(arguments, references)
    scores = [
        bleu(hypotheses, references, arguments.lowercase, tokenize),
        chrf(hypotheses, references, arguments.lowercase),
    ]
    if arguments.json:
        values = {s.name: {"score": s.value, "signature": s.signature} for s in scores}
        print(json.dumps(values))
    else:
        print(*scores, sep="\n")


def _find_model(arguments):
    """Takes MODEL from the end of --target, where argparse leaves it, if it is a directory."""
    if arguments.model is None and arguments.hypothesis is None:
        *target, last = arguments.target
        if not (target and pathlib.Path(last).is_dir()):
            arguments.refuse(
                "one of the arguments MODEL --hypothesis is required; everything that follows "
                f"--target is references: {' '.join(arguments.target)}"
            )
        arguments.target, arguments.model = target, last


def _tokenizer_of(model):
    """Returns the tokenizer with which the BLEU of a run was computed in its training."""
    if model is not None and (settings := pathlib.Path(model, "config.yaml")).exists():
        return Config.load(settings).training.bleu_tokenizer
    return TrainingConfig().bleu_tokenizer


def _hypotheses(arguments, references):
    """Returns the translations to score, from a file or a model."""
    if arguments.hypothesis is not None:
        flags = given_settings(arguments, "decoding") or arguments.checkpoint or arguments.source
        if flags is not None and flags != {}:
            raise InputError(
                "Expected a model for --source and the flags of the search. "
                f"Received: --hypothesis {arguments.hypothesis}. Leave these flags out."
            )
        return list(iterate_lines(arguments.hypothesis))
    if arguments.source is None:
        raise InputError(
            "Expected the text for the model to translate. "
            f"Received: {arguments.model} without --source. Add --source F."
        )
    source = list(iterate_lines(arguments.source))
    for path, lines in zip(arguments.target, references, strict=True):
        check_parallel(arguments.source, source, path, lines)
    translator = load_translator(arguments)
    return [best.text for (best,) in translations_of(translator, source)]
