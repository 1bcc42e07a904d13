"""`keras-transformer quickstart`: the tour, from no data to an export."""

from keras_transformer.cli import console
from keras_transformer.files.text import check_directory

SUMMARY = "train, translate and export a small model, in minutes"


def add_arguments(parser):
    parser.add_argument(
        "--output",
        metavar="DIR",
        default="quickstart",
        help="directory for everything it writes (default: quickstart)",
    )


def run(arguments):
    check_directory(arguments.output)
    console.check_backend(for_export=True)
    console.start_keras()
    from keras_transformer.quickstart import tour

    tour.run(arguments.output)
