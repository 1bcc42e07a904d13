"""`keras-transformer import`: makes a run of an OPUS-MT model, and prints its path."""

import functools
import sys

from keras_transformer.cli import console
from keras_transformer.cli.arguments import check_exists
from keras_transformer.cli.progress import working
from keras_transformer.files.text import check_directory

SUMMARY = "make a run of an OPUS-MT (Marian) model"


def add_arguments(parser):
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="directory of the model: Hugging Face's files (config.json, model.safetensors or "
        "pytorch_model.bin, vocab.json, source.spm, target.spm) or Marian's (decoder.yml, *.npz)",
    )
    parser.add_argument(
        "--output", metavar="RUN", required=True, help="directory of the run, new or empty"
    )


def run(arguments):
    check_directory(arguments.output, empty=True)
    check_exists(arguments.directory, "a model")
    with working("importing the model"):
        console.start_keras()
        from keras_transformer.convert import import_run

        write = functools.partial(print, file=sys.stderr)
        path = import_run(arguments.directory, arguments.output, write)
    console.print_result(path, f"The run is complete, at {path}")
