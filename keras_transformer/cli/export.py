"""`keras-transformer export`: exports a run for a server or a library, and prints its path."""

from keras_transformer import console
from keras_transformer.cli.models import add_decoding, add_model, add_n_best, load_translator
from keras_transformer.errors import InputError
from keras_transformer.text_files import check_directory

SUMMARY = "write the SavedModel that takes and returns strings, or another library's format"
FORMATS = ("saved_model", "ctranslate2")
WEIGHTS = ("float32", "float16", "bfloat16", "int8", "int8_float32")


def add_arguments(parser):
    add_model(parser, "RUN")
    parser.add_argument(
        "directory", metavar="DIR", help="directory in which the version is written"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="saved_model, for TensorFlow Serving and `serve`; or ctranslate2, for CTranslate2 and "
        "`serve` (default: saved_model)",
    )
    parser.add_argument(
        "--weights",
        choices=WEIGHTS,
        default="float32",
        help="type in which the weights are stored (default: float32)",
    )
    add_decoding(parser)
    add_n_best(parser, "number of translations that the signature n_best returns (default: 1)")
    parser.add_argument(
        "--split-sentences",
        action="store_true",
        help="translate a text sentence by sentence, so that long texts are not cut",
    )
    parser.add_argument(
        "--version", metavar="N", type=int, help="version number (default: the next free one)"
    )


def run(arguments):
    check_directory(arguments.directory)
    _check_format(arguments)
    console.check_backend(for_export=True)
    translator = load_translator(arguments, of_run=True)
    path = _export(arguments, translator)
    try:
        print(path, flush=True)
    except OSError as error:
        raise OSError(
            f"The export is complete, at {path}. Its path could not be printed: {error.strerror}"
        ) from None


def _export(arguments, translator):
    """Writes the format that is asked for; returns the path of the version."""
    options = dict(n_best=arguments.n_best, version=arguments.version)
    if arguments.format == "ctranslate2":
        from keras_transformer.export import export_ctranslate2

        return export_ctranslate2(
            translator, arguments.directory, weights=arguments.weights, **options
        )
    from keras_transformer.export import export_saved_model

    options["split_sentences"] = arguments.split_sentences
    return export_saved_model(translator, arguments.directory, **options)


def _check_format(arguments):
    """Refuses flags that another format has, before anything is loaded."""
    is_saved_model = arguments.format == "saved_model"
    if arguments.split_sentences and not is_saved_model:
        raise InputError(
            "Expected --split-sentences with --format saved_model. "
            f"Received: --format {arguments.format}. Leave one of them out."
        )
    if is_saved_model and arguments.weights != "float32":
        raise InputError(
            "Expected --weights float32 with --format saved_model. "
            f"Received: --weights {arguments.weights}. Leave it out, or choose another format."
        )
