"""`keras-transformer plot`: draws the attention weights of a translation."""

import warnings

from keras_transformer import console
from keras_transformer.cli.models import add_decoding, add_model, load_translator
from keras_transformer.text_files import check_utf8, check_writable

SUMMARY = "draw the attention weights of a translation"


def add_arguments(parser):
    add_model(parser, "RUN")
    parser.add_argument("sentence", metavar="SENTENCE", help="text to translate")
    parser.add_argument("--output", metavar="F.png", required=True, help="PNG, PDF or SVG file")
    add_decoding(parser)


def run(arguments):
    check_utf8("the sentence", arguments.sentence)
    check_writable(arguments.output)
    from keras_transformer.plots import attention_maps, check_format

    check_format(arguments.output)
    translator = load_translator(arguments, of_run=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        attention_maps(translator.attention(arguments.sentence), arguments.output)
    for warning in caught:
        console.say(f"warning: {warning.message}")
