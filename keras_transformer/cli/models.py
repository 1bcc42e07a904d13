"""What the commands that load a model share: its arguments, and translation chunk by chunk."""

import itertools
import pathlib

from keras_transformer import console
from keras_transformer.cli.parser import add_settings, given_settings, whole_number
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError
from keras_transformer.parallel_calls import NUM_CORES
from keras_transformer.settings import LARGEST

CHUNK_LINES = max(1024, 512 * NUM_CORES)
"""Lines that are read and translated at once, so that memory is bounded for any input: 8 batches
for each core. Of a file, two such chunks are in memory."""


def add_model(parser, metavar, **arguments):
    """Adds the argument that names a model: a RUN, or a MODEL, which may also be an export."""
    meaning = "directory of a run"
    if metavar == "MODEL":
        meaning += ", of an export (its highest version is used), or of one version of an export"
    parser.add_argument("model", metavar=metavar, help=meaning, **arguments)


def add_decoding(parser):
    """Adds the flags of the search, and of the weights to load."""
    group = parser.add_argument_group(
        "search", "The default is the setting of the run. The search of an export is fixed."
    )
    add_settings(group, DecodingConfig, "N", ["beam_size"])
    add_settings(group, DecodingConfig, "ALPHA", ["length_penalty"])
    add_settings(group, DecodingConfig, "N", ["max_length"])
    add_settings(group, DecodingConfig, "K", ["shortlist"])
    group.add_argument(
        "--checkpoint",
        choices=("best", "last", "averaged"),
        help="weights of a run (default: best or averaged, as the training chose)",
    )


def add_n_best(parser, meaning):
    """Adds the flag for the number of translations of each text."""
    number = whole_number(1, LARGEST)
    parser.add_argument("--n-best", metavar="K", type=number, default=1, help=meaning)


def load_translator(arguments, of_run=False):
    """Returns the translator of a run, with the search that the flags ask for, or of an export.

    Args:
        arguments: parsed arguments of `add_model` and `add_decoding`.
        of_run: whether an export is refused.
    """
    given = given_settings(arguments, "decoding")
    DecodingConfig(**given)
    if not pathlib.Path(arguments.model).is_dir():
        raise InputError(
            "Expected the directory of a run or of an export. "
            f"Received: {arguments.model}: no such directory. Check the name."
        )
    console.start_keras(to_search=True)
    from keras_transformer.loading import load
    from keras_transformer.translator import Translator

    translator = load(arguments.model, arguments.checkpoint, **given)
    if of_run and not isinstance(translator, Translator):
        raise InputError(
            f"Expected the directory of a run. Received: {arguments.model}: an export. "
            "Name the run that it was made from."
        )
    return translator


def translations_of(translator, lines, n_best=1, ahead=True, chunk_lines=None, show_progress=True):
    """Yields the list of translations of each line.

    Args:
        ahead: whether to read the next chunk of lines before this one is translated. Otherwise the
            answers come even if whoever writes the lines waits for them.
        chunk_lines: lines translated at once; None: `CHUNK_LINES`.
        show_progress: whether a terminal shows a progress bar.
    """
    from tqdm import tqdm

    lines = iter(lines)
    chunks = iter(lambda: list(itertools.islice(lines, chunk_lines or CHUNK_LINES)), [])
    if ahead:
        answers = translator.translate_chunks(chunks, n_best)
    else:
        answers = (translator.translate(chunk, n_best) for chunk in chunks)
    # disable=None: silent where standard error is no terminal
    with tqdm(unit=" lines", disable=None if show_progress else True) as progress:
        for chunk in answers:
            yield from chunk
            progress.update(len(chunk))
