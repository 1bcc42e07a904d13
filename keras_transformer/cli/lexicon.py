"""`keras-transformer lexicon`: learns which tokens translate one another, for shortlists."""

from keras_transformer.cli import console
from keras_transformer.cli.arguments import add_model, paired_files

SUMMARY = "learn the lexicon that --shortlist needs from the training text of a run"


def add_arguments(parser):
    add_model(parser, "RUN")
    parser.add_argument(
        "--source", metavar="F", help="parallel text to learn from (default: that of the run)"
    )
    parser.add_argument("--target", metavar="F", help="its translations, in the same order")


def run(arguments):
    files = paired_files(arguments, "lexicon.npz")
    console.start_keras()
    from keras_transformer.data import ParallelCorpus
    from keras_transformer.training import write_lexicon

    corpus = None if files is None else ParallelCorpus.from_files(*files)
    path = write_lexicon(arguments.model, corpus, write=console.say)
    console.print_result(path, f"The lexicon is complete, at {path}")
