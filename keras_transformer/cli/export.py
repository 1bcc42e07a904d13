"""`keras-transformer export`: exports a run for a server or a library, and prints its path."""

from keras_transformer.cli import console
from keras_transformer.cli.arguments import (
    add_alignment_head,
    add_decoding,
    add_ensemble,
    add_model,
    add_n_best,
    load_translator,
)
from keras_transformer.cli.progress import working
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_directory

SUMMARY = "export a run as a SavedModel that takes and returns strings, or for other libraries"
FORMATS = ("saved_model", "ctranslate2", "hugging_face")
FORMATS_OF_WEIGHTS = {
    "float32": FORMATS,
    "float16": ("saved_model", "ctranslate2"),
    "bfloat16": ("saved_model", "ctranslate2"),
    "int8": ("saved_model", "ctranslate2"),
    "int8_float32": ("ctranslate2",),
}


def add_arguments(parser):
    add_model(parser, "RUN", nargs="+")
    parser.add_argument(
        "directory", metavar="DIR", help="directory in which the version is written"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="saved_model, for TensorFlow Serving and `serve`; ctranslate2, for CTranslate2 and "
        "`serve`; or hugging_face, a MarianMTModel (default: saved_model)",
    )
    parser.add_argument(
        "--weights",
        choices=tuple(FORMATS_OF_WEIGHTS),
        default="float32",
        help="number type in which matrices are stored (default: float32; int8_float32 is for "
        "ctranslate2 only); with int8, products are computed in int8 on processors with VNNI, and "
        "BLEU is compared with that of float32 on the validation text of a run",
    )
    add_decoding(parser)
    add_ensemble(parser)
    add_alignment_head(parser)
    add_n_best(parser, "number of translations that the signature n_best returns (default: 1)")
    parser.add_argument(
        "--split-sentences",
        action="store_true",
        help="translate a text sentence by sentence, so that long texts are not cut",
    )
    parser.add_argument(
        "--languages",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="languages that the model card names (default: the endings of the training files)",
    )
    parser.add_argument(
        "--license", metavar="NAME", help="license that the model card names, such as cc-by-4.0"
    )
    parser.add_argument(
        "--version", metavar="N", type=int, help="version number (default: the next free one)"
    )


def run(arguments):
    check_directory(arguments.directory)
    _check_format(arguments)
    console.check_backend(for_export=arguments.format == "saved_model")
    with working("loading the run"):
        translator = load_translator(arguments, of_run=True)
    with working("exporting, and comparing the export with the run in a fresh process"):
        path = _export(arguments, translator)
    console.print_result(path, f"The export is complete, at {path}")


def _export(arguments, translator):
    """Writes the format that is asked for; returns the path of the version."""
    from keras_transformer import export  # whose functions load alone: only one needs TensorFlow

    given = arguments.checkpoint, arguments.adapter, arguments.languages, arguments.license
    options = dict(version=arguments.version, about=export.facts_of_runs(arguments.model, *given))
    if arguments.format == "hugging_face":
        return export.export_hugging_face(translator, arguments.directory, **options)
    options |= dict(n_best=arguments.n_best, weights=arguments.weights)
    if arguments.format == "ctranslate2":
        return export.export_ctranslate2(translator, arguments.directory, **options)
    options["split_sentences"] = arguments.split_sentences
    if arguments.weights == "int8":
        options |= _validation(arguments.model[0])
    return export.export_saved_model(translator, arguments.directory, **options)


def _validation(path):
    """Returns the validation text of a run, for `export_saved_model`; an imported run has none."""
    from keras_transformer.export.int8_products import has_int8_product
    from keras_transformer.runs.run import Run
    from keras_transformer.training.translation_task import validation_text_of_run

    if not has_int8_product():
        console.say("TensorFlow has no int8 product here: the export computes in float32")
        return {}
    run = Run(path)
    try:
        config = run.load_config()
        corpus = validation_text_of_run(run, config, console.say)
    except ValueError as error:
        console.say(f"the BLEU of int8 is not compared with that of float32: {error}")
        return {}
    tokenizer = config.training.bleu_tokenizer
    return {"validation": (corpus.source, corpus.target), "bleu_tokenizer": tokenizer}


def _check_format(arguments):
    """Refuses flags that another format has, before anything is loaded."""
    given = {
        "--split-sentences": ("saved_model",) if arguments.split_sentences else FORMATS,
        "--weights": FORMATS_OF_WEIGHTS[arguments.weights],
        "several runs": FORMATS if len(arguments.model) == 1 else ("saved_model",),
        "--alignment-head": FORMATS if arguments.alignment_head is None else ("saved_model",),
        "--n-best": ("saved_model", "ctranslate2") if arguments.n_best != 1 else FORMATS,
    }
    for given_one, formats in given.items():
        if arguments.format not in formats:
            raise InputError(
                f"Expected {given_one} with --format {' or '.join(formats)}. "
                f"Received: --format {arguments.format}. Leave one of them out."
            )
