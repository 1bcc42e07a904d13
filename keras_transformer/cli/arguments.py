"""What the commands share: the parser, the flags, and the translator that they name."""

import argparse
import contextlib
import difflib
import itertools
import pathlib
import re

from keras_transformer.cli import console
from keras_transformer.cli.progress import Progress, working
from keras_transformer.config import DecodingConfig
from keras_transformer.config.settings import LARGEST, NUM_CORES, plain_type, settings
from keras_transformer.config.yaml import yaml_word
from keras_transformer.errors import InputError, shortened
from keras_transformer.files.text import check_no_input, check_readable

CHUNK_LINES = max(1024, 512 * NUM_CORES)
"""Lines that are read and translated at once, so that memory is bounded for any input: 8 batches
for each core. Of a file, two such chunks are in memory."""
FIRST_LINES = 128
"""The lines of the first chunk."""


class Parser(argparse.ArgumentParser):
    """Prints a usage error as one line, and does not accept abbreviated options.

    Attributes:
        default_command: the subcommand that is meant where the first argument names none, or None.
    """

    default_command = None

    def __init__(self, **arguments):
        super().__init__(allow_abbrev=False, **arguments)

    def parse_known_args(self, args=None, namespace=None):
        if self.default_command is not None and args:
            (commands,) = self._subparsers._group_actions
            if args[0] not in (*commands.choices, "-h", "--help"):
                args = [self.default_command, *args]
        namespace, others = super().parse_known_args(args, namespace)
        flags = [word.partition("=")[0] for word in others if word.startswith("--")]
        if flags:  # here, because only the parser of the command knows its flags
            hint = _did_you_mean(flags[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(others)}{hint}")
        return namespace, others

    def print_help(self, file=None):
        # argparse's own method ignores an error of writing
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message):
        if choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            known = re.findall(r"[^', ]+", choice[2])
            message += _did_you_mean(choice[1], known)
        message = shortened(message)
        self.exit(2, f"{self.prog}: error: {message} (`{self.prog} --help` shows the usage)\n")


def _did_you_mean(name, known):
    close = difflib.get_close_matches(name, known, n=1)
    return f". Did you mean {close[0]}?" if close else ""


def number(expected, is_right, kind=float):
    """Returns the argparse type of numbers for which `is_right(number)`; `expected` says which."""

    def parse(text):
        with contextlib.suppress(ValueError):
            if is_right(kind(text)):
                return kind(text)
        raise argparse.ArgumentTypeError(f"expected {expected}; received: {text}")

    return parse


def whole_number(least, most):
    """Returns the argparse type of a whole number from `least` to `most`."""
    expected = f"a whole number from {least} to {most}"
    return number(expected, lambda value: least <= value <= most, int)


def add_settings(parser, group_class, metavar, names, show_default=False):
    """Adds a flag for each of the settings `names`; its help is the setting's meaning."""
    for name in names:
        setting = settings(group_class)[name]
        flag_type = plain_type(setting.annotation)
        meaning = setting.meaning[0].lower() + setting.meaning[1:].removesuffix(".")
        if show_default:
            meaning = f"{meaning} (default: {yaml_word(setting.default)})"
        arguments = {"dest": f"{group_class.GROUP}.{name}", "help": meaning.replace("%", "%%")}
        if flag_type is bool:
            arguments.update(action="store_const", const=True)
        else:
            arguments.update(type=flag_type, metavar=metavar)
        parser.add_argument(f"--{name.replace('_', '-')}", **arguments)


def add_set(parser):
    """Adds the flag for any setting."""
    parser.add_argument(
        "--set",
        metavar="group.key=value",
        nargs="+",
        action="extend",
        default=[],
        help="any setting, such as model.d_model=256; `train --help` lists them",
    )


def given_settings(arguments, group):
    """Returns the settings of a group that are given as flags: dict from name to value."""
    return {
        name.partition(".")[2]: value
        for name, value in vars(arguments).items()
        if name.startswith(f"{group}.") and value is not None
    }


def add_model(parser, metavar, **arguments):
    """Adds the argument that names a model: a RUN, or a MODEL, which may also be an export."""
    meaning = "directory of a run"
    if metavar == "MODEL":
        meaning += ", of an export (its highest version is used), or of one version of an export"
    if "nargs" in arguments:
        meaning += "; several runs with one tokenizer are an ensemble, with the search of the first"
    parser.add_argument("model", metavar=metavar, help=meaning, **arguments)


def add_ensemble(parser):
    """Adds the flag for what several models predict, see `Ensemble`."""
    parser.add_argument(
        "--ensemble",
        choices=("probabilities", "log_probabilities"),
        help="what an ensemble takes the mean of (default: probabilities)",
    )


def add_reranking(parser):
    """Adds the flag for the model of a `RerankingTranslator`."""
    parser.add_argument(
        "--rerank-with",
        metavar="RUN",
        help="choose from all translations in the beam by how well this run, from the target to "
        "the source, gives the text back, too",
    )


def add_alignment_head(parser):
    """Adds the flag for the head by which words are aligned, see `Translator`."""
    parser.add_argument(
        "--alignment-head",
        nargs=2,
        type=int,
        metavar=("LAYER", "HEAD"),
        help="head of the attention to the source that aligns words, counted from 0 (default: the "
        "one that was trained to align, or else the mean of the heads of the last layer but one)",
    )


def add_decoding(parser):
    """Adds the flags of the search, and of the weights to load."""
    group = parser.add_argument_group(
        "search", "The defaults are the settings of the run. The search of an export is fixed."
    )
    add_settings(group, DecodingConfig, "N", ["beam_size"])
    add_settings(group, DecodingConfig, "ALPHA", ["length_penalty"])
    add_settings(group, DecodingConfig, "N", ["max_length", "min_length", "no_repeat_ngram"])
    add_settings(group, DecodingConfig, "THETA", ["repetition_penalty"])
    add_settings(group, DecodingConfig, "K", ["shortlist"])
    add_checkpoint(group)
    group.add_argument(
        "--adapter",
        metavar="F",
        help="adapter.npz of a training with training.lora_rank that began from the run; it is "
        "merged into the run's weights",
    )


def add_checkpoint(parser):
    parser.add_argument(
        "--checkpoint",
        choices=("best", "last", "averaged"),
        help="weights of the run (default: best or averaged, as the training chose)",
    )


def add_bleu(parser):
    """Adds the flags that change how BLEU is computed."""
    parser.add_argument("--lowercase", action="store_true", help="ignore case")
    parser.add_argument(
        "--tokenize",
        metavar="NAME",
        help="sacreBLEU's tokenizer for BLEU: 13a, none, intl, char, zh and others (default: "
        "training.bleu_tokenizer of the run, else 13a)",
    )


def add_n_best(parser, meaning):
    """Adds the flag for the number of translations of each text."""
    number = whole_number(1, LARGEST)
    parser.add_argument("--n-best", metavar="K", type=number, default=1, help=meaning)


def paired_files(arguments, written):
    """Returns the paths of --source and --target, or None if neither is given.

    Args:
        written: name of the file of the run that the command writes.
    """
    files = arguments.source, arguments.target
    if (files[0] is None) != (files[1] is None):
        raise InputError(
            "Expected --source and --target together. Received: "
            f"source={files[0]}, target={files[1]}. Give both files, or neither."
        )
    if None in files:
        return None
    check_no_input(pathlib.Path(arguments.model, written), files)
    return files


def check_exists(directory, owner):
    """Raises `ValueError` where there is no directory of `owner`, such as "a run"."""
    if not pathlib.Path(directory).is_dir():
        raise InputError(
            f"Expected the directory of {owner}. "
            f"Received: {directory}: no such directory. Check the name."
        )


def files_of(models):
    """Returns the files of runs or exports, without what users write beside them."""
    names = "*.yaml", "*.json*", "*.npz", "*.pb", "*.bin", "SHA256SUMS", "*/**/*"
    return [path for model in models for name in names for path in pathlib.Path(model).glob(name)]


def load_translator(arguments, of_run=False):
    """Returns the translator of a run, with the search that the flags ask for, or of an export.

    Args:
        arguments: parsed arguments of `add_model` and `add_decoding`, and perhaps of
            `add_ensemble`, `add_reranking` and `add_alignment_head`.
        of_run: whether an export is refused.
    """
    given = given_settings(arguments, "decoding")
    DecodingConfig(**given)
    models = arguments.model if isinstance(arguments.model, list) else [arguments.model]
    reverse = getattr(arguments, "rerank_with", None)
    for model in models if reverse is None else [*models, reverse]:
        check_exists(model, "a run or of an export")
    if arguments.adapter is not None:
        check_readable(arguments.adapter)
        given["adapter"] = arguments.adapter
    if (ensemble := getattr(arguments, "ensemble", None)) is not None:
        given["ensemble"] = ensemble
    if (head := getattr(arguments, "alignment_head", None)) is not None:
        given["alignment_head"] = tuple(head)
    with working("loading the model"):
        console.start_keras(to_search=True)
        from keras_transformer.translation.loading import load

        translator = load(models[0] if len(models) == 1 else models, arguments.checkpoint, **given)
        if of_run:
            _check_run(translator, models[0])
        if reverse is not None:
            from keras_transformer.translation.reranking import RerankingTranslator

            other = load(reverse)
            _check_run(other, reverse)
            translator = RerankingTranslator(translator, other)
    return translator


def _check_run(translator, path):
    from keras_transformer.translation.translator import Translator

    if not isinstance(translator, Translator):
        raise InputError(
            f"Expected the directory of a run. Received: {path}: an export. "
            "Name the run that it was made from."
        )


def translations_of(translator, lines):
    """Returns the best translation of each line, and shows how far it is."""
    progress = Progress()
    answers = translator.translate_chunks(chunks_of(lines), on_batch=progress.ahead)
    return [best.text for (best,) in progress.one_by_one(answers)]


def chunks_of(lines, done=0):
    """Yields lists of lines, of `FIRST_LINES`, twice as many and so on, up to `CHUNK_LINES`.

    The first ones are short: what an end of the process loses is little, and progress soon shows.
    Where they end depends on the place in the input alone, as lines that are translated together
    decide the last digit of a score: a command that goes on has the scores of one that was whole.

    Args:
        done: how many lines of the input came before these.
    """
    lines, size, end = iter(lines), min(FIRST_LINES, CHUNK_LINES), 0
    while True:
        end += size
        if end > done:
            chunk = list(itertools.islice(lines, end - done))
            if not chunk:
                return
            yield chunk
            done = end
        size = min(2 * size, CHUNK_LINES)
