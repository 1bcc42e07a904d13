"""`keras-transformer plot`: draws pictures of models, their trainings and their searches."""

import argparse
import functools
import inspect
import pathlib
import warnings

from keras_transformer.cli import console
from keras_transformer.cli.arguments import (
    add_decoding,
    add_model,
    load_translator,
    translations_of,
    whole_number,
)
from keras_transformer.cli.train import add_config, config_of
from keras_transformer.config.settings import LARGEST
from keras_transformer.errors import InputError
from keras_transformer.files.text import (
    check_parallel,
    check_readable,
    check_utf8,
    check_writable,
    iterate_lines,
)

SUMMARY = "draw attention, learning curves, positions, schedules, beam search, or BLEU by length"
MAX_POSITIONS = 10_000


def add_arguments(parser):
    parser.description += " `plot RUN SENTENCE` is short for `plot attention RUN SENTENCE`."
    parser.default_command = "attention"
    pictures = parser.add_subparsers(title="pictures", metavar="PICTURE", required=True)
    for name, (summary, add_arguments, prepare) in PICTURES.items():
        added = pictures.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
        )
        add_arguments(added)
        added.set_defaults(prepare=prepare)


def run(arguments):
    check_writable(arguments.output)
    draw = arguments.prepare(arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        draw()
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            console.say(f"warning: {warning.message}")


def _add_output(parser, meaning="PNG, PDF or SVG file"):
    parser.add_argument("--output", metavar="F.png", required=True, help=meaning)


def _add_sentence(parser):
    add_model(parser, "RUN")
    parser.add_argument("sentence", metavar="SENTENCE", help="text to translate")


def _add_translation(parser):
    parser.add_argument(
        "--target", metavar="TEXT", help="translation to look at (default: the one that is found)"
    )
    parser.add_argument(
        "--layer", metavar="N", type=int, help="layer, from 0 (default: -1, the last)"
    )


def _add_attention(parser):
    _add_sentence(parser)
    meaning = "PNG, PDF or SVG file; or HTML, an interactive view of all layers"
    _add_output(parser, meaning=meaning)
    _add_translation(parser)
    parser.add_argument(
        "--kind",
        choices=("encoder", "decoder", "cross"),
        help="self-attention of the encoder or decoder, or cross-attention (default: cross)",
    )
    add_decoding(parser)


def _prepare_attention(arguments):
    from keras_transformer.plots import attention_maps, attention_view, check_format

    given = _given(layer=arguments.layer, kind=arguments.kind)
    is_page = arguments.output.lower().endswith(".html")
    if not is_page:
        check_format(arguments.output)
    elif given:
        raise InputError(
            "Expected no layer or kind for an interactive view, which has all of them. Received: "
            f"--{next(iter(given))} with --output {arguments.output}. Leave it out."
        )
    draw = attention_view if is_page else attention_maps
    return functools.partial(draw, _attention_of(arguments), arguments.output, **given)


def _add_alignment(parser):
    _add_sentence(parser)
    _add_output(parser)
    _add_translation(parser)
    add_decoding(parser)


def _prepare_alignment(arguments):
    from keras_transformer.plots import alignment, check_format

    check_format(arguments.output)
    given = _given(layer=arguments.layer)
    return functools.partial(alignment, _attention_of(arguments), arguments.output, **given)


def _attention_of(arguments):
    """Returns the `AttentionMap` of the sentence and its translation."""
    check_utf8("the sentence", arguments.sentence)
    check_utf8("--target", arguments.target or "")
    translator = load_translator(arguments, of_run=True)
    return translator.attention(arguments.sentence, **_given(target=arguments.target))


def _given(**values):
    """Returns the arguments that are not None: the functions have the defaults of the others."""
    return {name: value for name, value in values.items() if value is not None}


def _add_curves(parser):
    parser.add_argument("runs", metavar="RUN", nargs="+", help="directory of a run")
    _add_output(parser)


def _prepare_curves(arguments):
    from keras_transformer.plots import check_format, learning_curves

    check_format(arguments.output)
    runs = _by_label(arguments.runs)
    metrics = {label: pathlib.Path(run, "metrics.jsonl") for label, run in runs.items()}
    for path in metrics.values():
        check_readable(path)
    if len(metrics) == 1:
        (metrics,) = metrics.values()
    return functools.partial(learning_curves, metrics, arguments.output)


def _by_label(runs):
    """Returns a dict from the name of each run's directory, or its path, to the path."""
    if len(set(runs)) < len(runs):
        raise InputError(f"Expected each run once. Received: {' '.join(runs)}.")
    names = [pathlib.Path(run).resolve().name for run in runs]
    return dict(zip(names if len(set(names)) == len(names) else runs, runs, strict=True))


def _add_positions(parser):
    _add_output(parser)
    number, width = whole_number(1, MAX_POSITIONS), whole_number(1, MAX_POSITIONS)
    parser.add_argument(
        "--num-positions", metavar="N", type=number, default=100, help="default: 100"
    )
    parser.add_argument(
        "--d-model", metavar="D", type=width, default=128, help="width of the model; default: 128"
    )
    parser.add_argument(
        "--layout",
        choices=("interleaved", "concatenated"),
        help="order of sines and cosines (default: interleaved, as in the paper)",
    )


def _prepare_positions(arguments):
    from keras_transformer.plots import check_format, position_encoding

    check_format(arguments.output)
    console.start_keras(with_text=False)
    given = _given(layout=arguments.layout)
    sizes = arguments.num_positions, arguments.d_model
    return functools.partial(position_encoding, *sizes, path=arguments.output, **given)


def _add_schedule(parser):
    _add_output(parser)
    add_config(parser)
    parser.add_argument(
        "--max-steps",
        metavar="N",
        type=whole_number(1, LARGEST),
        help="steps to draw (default: those of the settings)",
    )


def _prepare_schedule(arguments):
    from keras_transformer.plots import check_format, learning_rates

    check_format(arguments.output)
    console.start_keras(with_text=False)
    from keras_transformer.models.from_config import check_model_settings, model_class_of
    from keras_transformer.training.schedules import schedule_of

    config = config_of(arguments)
    check_model_settings(config)
    width = inspect.signature(model_class_of(config)).parameters["d_model"].default
    schedule = schedule_of(config.training, config.model.get("d_model", width))
    num_steps = arguments.max_steps or config.training.max_steps
    return functools.partial(learning_rates, schedule, num_steps, arguments.output)


def _add_beam(parser):
    _add_sentence(parser)
    _add_output(parser)
    add_decoding(parser)


def _prepare_beam(arguments):
    from keras_transformer.plots import beam_tree, check_format

    check_format(arguments.output)
    check_utf8("the sentence", arguments.sentence)
    translator = load_translator(arguments, of_run=True)
    tree = translator.search_tree(arguments.sentence)
    return functools.partial(beam_tree, tree, arguments.output)


def _add_lengths(parser):
    parser.add_argument("runs", metavar="RUN", nargs="+", help="directory of a run, or an export")
    parser.add_argument("--source", metavar="F", required=True, help="text to translate")
    parser.add_argument("--target", metavar="F", required=True, help="its reference translation")
    _add_output(parser)
    add_decoding(parser)


def _prepare_lengths(arguments):
    from keras_transformer.plots import bleu_by_length, check_format

    check_format(arguments.output)
    runs = _by_label(arguments.runs)
    sources, references = map(list, map(iterate_lines, (arguments.source, arguments.target)))
    check_parallel(arguments.source, sources, arguments.target, references)
    translations = {}
    for label, run in runs.items():
        translator = load_translator(argparse.Namespace(**{**vars(arguments), "model": run}))
        translations[label] = [best.text for (best,) in translations_of(translator, sources)]
    texts = sources, references, translations
    return functools.partial(bleu_by_length, *texts, arguments.output)


PICTURES = {
    "attention": (
        "draw all heads of a layer, or make an interactive page of all layers",
        *(_add_attention, _prepare_attention),
    ),
    "alignment": (
        "draw which words of a sentence its translation comes from",
        *(_add_alignment, _prepare_alignment),
    ),
    "curves": ("draw the learning curves of runs", _add_curves, _prepare_curves),
    "positions": ("draw sinusoidal positions", _add_positions, _prepare_positions),
    "schedule": ("draw the learning rate of settings", _add_schedule, _prepare_schedule),
    "beam": ("draw the beam search of a translation as a tree", _add_beam, _prepare_beam),
    "lengths": ("draw BLEU by the length of the source", _add_lengths, _prepare_lengths),
}
"""From the name of a picture to its summary, what adds its arguments, and what computes from these
the data and returns a function that draws them."""
