"""`keras-transformer prepare`: tokenizes text into shards, from which `train --prepared` trains."""

from keras_transformer.cli import console
from keras_transformer.cli.arguments import add_set
from keras_transformer.config import Config
from keras_transformer.files.text import check_directory, check_readable

SUMMARY = "tokenize text that is larger than memory, for train --prepared"


def add_arguments(parser):
    parser.add_argument(
        "config",
        metavar="CONFIG",
        help="YAML file with the text in data.train or data.dataset, and settings of tokenizer.*",
    )
    add_set(parser)
    parser.add_argument(
        "--output",
        metavar="DIR",
        required=True,
        help="directory of the shards; the same command goes on where it was stopped",
    )


def run(arguments):
    config = Config.load(arguments.config).override(arguments.set)
    check_directory(arguments.output)
    for corpus in config.data.train + config.data.valid:
        for path in corpus.paths:
            if path != "-":  # which preparing refuses
                check_readable(path)
    console.start_keras()
    from keras_transformer.training.prepare import prepare

    prepare(config, arguments.output)
