"""`keras-transformer lexicon`: learns which tokens translate one another, for shortlists."""

from keras_transformer.cli import console
from keras_transformer.cli.models import add_model
from keras_transformer.errors import InputError

SUMMARY = "learn the lexicon of a run, which --shortlist needs, from its training text"


def add_arguments(parser):
    add_model(parser, "RUN")
    parser.add_argument(
        "--source", metavar="F", help="parallel text to learn from (default: that of the run)"
    )
    parser.add_argument("--target", metavar="F", help="its translations, in the same order")


def run(arguments):
    files = arguments.source, arguments.target
    if (files[0] is None) != (files[1] is None):
        raise InputError(
            "Expected --source and --target together. Received: "
            f"source={files[0]}, target={files[1]}. Give both files, or neither."
        )
    console.start_keras()
    from keras_transformer.data import ParallelCorpus
    from keras_transformer.training import write_lexicon

    corpus = None if files[0] is None else ParallelCorpus.from_files(*files)
    print(write_lexicon(arguments.model, corpus, write=console.say), flush=True)
