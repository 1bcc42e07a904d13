"""`keras-transformer export`: exports a run as a SavedModel, and prints its path."""

from keras_transformer import console
from keras_transformer.cli.models import add_decoding, add_model, add_n_best, load_translator
from keras_transformer.text_files import check_directory

SUMMARY = "write the SavedModel that takes and returns strings"


def add_arguments(parser):
    add_model(parser, "RUN")
    parser.add_argument(
        "directory", metavar="DIR", help="directory in which the version is written"
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
    console.check_backend(for_export=True)
    translator = load_translator(arguments, of_run=True)
    from keras_transformer.export import export_saved_model

    path = export_saved_model(
        translator,
        arguments.directory,
        n_best=arguments.n_best,
        version=arguments.version,
        split_sentences=arguments.split_sentences,
    )
    try:
        print(path, flush=True)
    except OSError as error:
        raise OSError(
            f"The export is complete, at {path}. Its path could not be printed: {error.strerror}"
        ) from None
