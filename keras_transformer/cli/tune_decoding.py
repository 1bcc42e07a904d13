"""`keras-transformer tune-decoding`: chooses the beam size and the length penalty of a run."""

from keras_transformer.cli import console
from keras_transformer.cli.arguments import (
    add_bleu,
    add_checkpoint,
    add_model,
    number,
    paired_files,
    whole_number,
)
from keras_transformer.cli.progress import working
from keras_transformer.config.groups import MAX_BEAM_SIZE, MAX_LENGTH_PENALTY

SUMMARY = "choose a run's beam size and length penalty by the BLEU of its validation text"


def add_arguments(parser):
    add_model(parser, "RUN")
    parser.add_argument(
        "--source", metavar="F", help="text to translate (default: the validation text of the run)"
    )
    parser.add_argument("--target", metavar="F", help="its reference translations")
    parser.add_argument(
        "--beam-sizes",
        metavar="N",
        nargs="+",
        type=whole_number(1, MAX_BEAM_SIZE),
        help="beam sizes to try (default: 1 2 4 8)",
    )
    penalty = number(
        f"a number from 0 to {MAX_LENGTH_PENALTY}", lambda alpha: 0 <= alpha <= MAX_LENGTH_PENALTY
    )
    parser.add_argument(
        "--length-penalties",
        metavar="ALPHA",
        nargs="+",
        type=penalty,
        help="length penalties to try with each beam size (default: 0 0.3 0.6 0.9 1.2 1.5)",
    )
    add_checkpoint(parser)
    add_bleu(parser)


def run(arguments):
    files = paired_files(arguments, "config.yaml")
    with working("starting Keras"):
        console.start_keras(to_search=True)
        from keras_transformer.data import ParallelCorpus
        from keras_transformer.training import tune_decoding

    names = "beam_sizes", "length_penalties", "checkpoint", "lowercase", "tokenize"
    given = {name: getattr(arguments, name) for name in names}
    with working("trying searches"):
        tuned = tune_decoding(
            arguments.model,
            None if files is None else ParallelCorpus.from_files(*files),
            write=console.say,
            **{name: value for name, value in given.items() if value is not None},
        )
    found = tuned.decoding
    console.print_result(
        f"BLEU {tuned.bleu:.2f} with beam_size={found.beam_size}, "
        f"length_penalty={found.length_penalty:g}; {tuned.bleu_before:.2f} before",
        f"The search is in the settings of {arguments.model}",
    )
