"""`keras-transformer plot`: draws pictures of models, their trainings and their searches."""

import argparse
import inspect
import os
import pathlib
import warnings

from keras_transformer.cli import console
from keras_transformer.cli.arguments import (
    add_alignment_head,
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
    check_no_input,
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
    for name, (summary, draw, *parts) in PICTURES.items():
        description = f"{summary[0].upper()}{summary[1:]}."
        added = pictures.add_parser(name, help=summary, description=description)
        for add_part in parts:
            add_part(added)
        added.set_defaults(draw=draw)


def run(arguments):
    os.environ.pop("MPLBACKEND", None)  # no window is needed, and matplotlib refuses unknown ones
    check_writable(arguments.output)
    read = [vars(arguments).get(name) for name in ("config", "source", "target")]
    check_no_input(arguments.output, [path for path in read if path is not None])
    if not _is_page(arguments):
        from keras_transformer.plots import check_format

        check_format(arguments.output)
    arguments.draw(arguments)


def _is_page(arguments):
    return arguments.draw is _draw_attention and arguments.output.lower().endswith(".html")


def _add_output(parser, meaning="PNG, PDF or SVG file"):
    parser.add_argument("--output", metavar="F.png", required=True, help=meaning)


def _add_output_or_page(parser):
    _add_output(parser, "PNG, PDF or SVG file; or HTML, an interactive view of all layers")


def _add_sentence(parser):
    add_model(parser, "RUN")
    parser.add_argument("sentence", metavar="SENTENCE", help="text to translate")


def _add_translation(parser):
    parser.add_argument(
        "--target", metavar="TEXT", help="translation to draw (default: the model's own)"
    )
    parser.add_argument(
        "--layer", metavar="N", type=int, help="layer, from 0 (default: -1, the last)"
    )


def _add_kind(parser):
    parser.add_argument(
        "--kind",
        choices=("encoder", "decoder", "cross"),
        help="self-attention of the encoder or decoder, or cross-attention (default: cross)",
    )


def _draw_attention(arguments):
    from keras_transformer.plots import attention_maps, attention_view

    given = _given(arguments, "layer", "kind")
    if _is_page(arguments) and given:
        raise InputError(
            "Expected no layer or kind for an interactive view, which has all of them. Received: "
            f"--{next(iter(given))} with --output {arguments.output}. Leave it out."
        )
    draw = attention_view if _is_page(arguments) else attention_maps
    _draw(draw, _attention_of(arguments, _translator_of(arguments)), arguments.output, **given)


def _draw_alignment(arguments):
    from keras_transformer.plots import alignment

    given = _given(arguments, "layer")
    if given and arguments.alignment_head is not None:
        raise InputError(
            "Expected --layer, for the mean of its heads, or --alignment-head. Received: "
            f"layer={arguments.layer}, alignment_head={arguments.alignment_head}. Leave out one."
        )
    translator = _translator_of(arguments)
    if not given and translator.alignment_head is not None:  # that of --alignments
        given["layer"], given["head"] = translator.alignment_head
    _draw(alignment, _attention_of(arguments, translator), arguments.output, **given)


def _attention_of(arguments, translator):
    """Returns the `AttentionMap` of the sentence and its translation."""
    return translator.attention(arguments.sentence, **_given(arguments, "target"))


def _translator_of(arguments):
    check_utf8("the sentence", arguments.sentence)
    check_utf8("--target", getattr(arguments, "target", None) or "")
    return load_translator(arguments, of_run=True)


def _given(arguments, *names):
    """Returns the arguments that are not None: the functions have the defaults of the others."""
    return {name: vars(arguments)[name] for name in names if vars(arguments)[name] is not None}


def _draw(function, *arguments, **keywords):
    """Calls a function of `plots` and repeats its warnings, which the start of Keras silences."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        function(*arguments, **keywords)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            console.say(f"warning: {warning.message}")


def _add_runs(parser, meaning="directory of a run"):
    parser.add_argument("runs", metavar="RUN", nargs="+", help=meaning)


def _draw_curves(arguments):
    from keras_transformer.plots import learning_curves

    runs = _by_label(arguments.runs)
    metrics = {label: pathlib.Path(run, "metrics.jsonl") for label, run in runs.items()}
    for path in metrics.values():
        check_readable(path)
    if len(metrics) == 1:
        (metrics,) = metrics.values()
    _draw(learning_curves, metrics, arguments.output)


def _by_label(runs):
    """Returns a dict from the name of each run's directory, or its path, to the path."""
    if len(set(runs)) < len(runs):
        raise InputError(f"Expected each run once. Received: {' '.join(runs)}.")
    names = [pathlib.Path(run).resolve().name for run in runs]
    return dict(zip(names if len(set(names)) == len(names) else runs, runs, strict=True))


def _add_positions(parser):
    size = whole_number(1, MAX_POSITIONS)
    parser.add_argument("--num-positions", metavar="N", type=size, default=100, help="default: 100")
    parser.add_argument(
        "--d-model", metavar="D", type=size, default=128, help="width of the model; default: 128"
    )
    parser.add_argument(
        "--layout",
        choices=("interleaved", "concatenated"),
        help="order of sines and cosines (default: interleaved, as in the paper)",
    )


def _draw_positions(arguments):
    from keras_transformer.plots import position_encoding

    console.start_keras()
    sizes, layout = (arguments.num_positions, arguments.d_model), _given(arguments, "layout")
    _draw(position_encoding, *sizes, path=arguments.output, **layout)


def _add_schedule(parser):
    add_config(parser)
    parser.add_argument(
        "--max-steps",
        metavar="N",
        type=whole_number(1, LARGEST),
        help="steps to draw (default: those of the settings)",
    )


def _draw_schedule(arguments):
    from keras_transformer.plots import learning_rates

    console.start_keras()
    from keras_transformer.models.from_config import check_model_settings, model_class_of
    from keras_transformer.training.schedules import schedule_of

    config = config_of(arguments)
    check_model_settings(config)
    width = inspect.signature(model_class_of(config)).parameters["d_model"].default
    schedule = schedule_of(config.training, config.model.get("d_model", width))
    num_steps = arguments.max_steps or config.training.max_steps
    _draw(learning_rates, schedule, num_steps, arguments.output)


def _draw_beam(arguments):
    from keras_transformer.plots import beam_tree

    tree = _translator_of(arguments).search_tree(arguments.sentence)
    _draw(beam_tree, tree, arguments.output)


def _add_lengths(parser):
    _add_runs(parser, "directory of a run, or an export")
    parser.add_argument("--source", metavar="F", required=True, help="text to translate")
    parser.add_argument("--target", metavar="F", required=True, help="its reference translation")


def _draw_lengths(arguments):
    from keras_transformer.plots import bleu_by_length

    runs = _by_label(arguments.runs)
    sources, references = map(list, map(iterate_lines, (arguments.source, arguments.target)))
    check_parallel(arguments.source, sources, arguments.target, references)
    translations = {}
    for label, run in runs.items():
        translator = load_translator(argparse.Namespace(**{**vars(arguments), "model": run}))
        translations[label] = translations_of(translator, sources)
    _draw(bleu_by_length, sources, references, translations, arguments.output)


PICTURES = {
    "attention": (
        "draw all heads of a layer, or make an interactive page of all layers",
        *(_draw_attention, _add_sentence, _add_output_or_page, _add_translation, _add_kind),
        add_decoding,
    ),
    "alignment": (
        "draw which source tokens each token of a translation attends to",
        *(_draw_alignment, _add_sentence, _add_output, _add_translation, add_alignment_head),
        add_decoding,
    ),
    "curves": ("draw the learning curves of runs", _draw_curves, _add_runs, _add_output),
    "positions": (
        "draw the sinusoidal position encoding",
        *(_draw_positions, _add_output, _add_positions),
    ),
    "schedule": ("draw a learning rate schedule", _draw_schedule, _add_output, _add_schedule),
    "beam": (
        "draw the beam search of a translation as a tree",
        *(_draw_beam, _add_sentence, _add_output, add_decoding),
    ),
    "lengths": (
        "draw BLEU by the length of the source",
        *(_draw_lengths, _add_lengths, _add_output, add_decoding),
    ),
}
"""From the name of a picture to its summary, what draws it, and what adds its arguments."""
