"""`keras-transformer import`: makes a run of an OPUS-MT model, and prints its path."""

import pathlib
import sys

from keras_transformer.cli import console
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_directory

SUMMARY = "make a run of an OPUS-MT (Marian) model"


def add_arguments(parser):
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="directory of the model, with the files of Hugging Face (config.json, "
        "model.safetensors or pytorch_model.bin, vocab.json, source.spm, target.spm) or with "
        "Marian's own (decoder.yml, *.npz)",
    )
    parser.add_argument(
        "--output", metavar="RUN", required=True, help="directory of the run, new or empty"
    )


def run(arguments):
    check_directory(arguments.output)
    if not pathlib.Path(arguments.directory).is_dir():
        raise InputError(
            "Expected the directory of a model. "
            f"Received: {arguments.directory}: no such directory. Check the name."
        )
    console.start_keras()
    from keras_transformer.convert import import_run

    def write(line):
        print(line, file=sys.stderr)

    print(import_run(arguments.directory, arguments.output, write), flush=True)
