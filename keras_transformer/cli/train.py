"""`keras-transformer train`: trains with settings from flags, a file and a preset."""

import argparse
import dataclasses
import os
import pathlib

from keras_transformer.cli import console
from keras_transformer.cli.arguments import add_set, add_settings, check_exists, given_settings
from keras_transformer.config import (
    GROUPS,
    STRATEGIES,
    Config,
    CorpusConfig,
    DataConfig,
    TrainingConfig,
)
from keras_transformer.config.presets import PRESETS, RECIPES, settings_file
from keras_transformer.config.settings import settings
from keras_transformer.config.yaml import yaml_word
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_directory, check_readable

WORKERS_VARIABLES = {"TF_CONFIG", "JAX_COORDINATOR_ADDRESS"}
"""Environment variables that tell of other workers."""
SUMMARY = "train a model on parallel text, or continue a run that was stopped"


def add_arguments(parser):
    for split, purpose in (("train", "to train on"), ("valid", "for validation")):
        for name, what in (
            (f"source-{split}", f"source sentences {purpose}, one per line"),
            (f"target-{split}", "their translations, in the same order"),
            (split, f"pairs {purpose} in two columns separated by a tab; - for standard input"),
        ):
            side = name.partition("-")[0] if "-" in name else "tsv"
            parser.add_argument(f"--{name}", metavar="F", dest=f"{split}.{side}", help=what)
    add_settings(parser, DataConfig, "NAME", ["dataset"])
    add_settings(parser, DataConfig, "DIR", ["prepared"])
    parser.add_argument("--output", metavar="RUN", required=True, help="directory of the run")
    add_config(parser)
    parser.add_argument(
        "--init-from",
        metavar="RUN",
        help="run whose model, tokenizer and search settings to start from",
    )
    add_settings(parser, TrainingConfig, "N", ["max_steps"])
    add_settings(parser, TrainingConfig, "M", ["max_minutes"])
    add_settings(parser, TrainingConfig, "S", ["seed"])
    add_settings(parser, TrainingConfig, None, ["deterministic"])
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="auto",
        help="devices to train on (default: auto, the workers of TF_CONFIG or, with JAX, of "
        "JAX_COORDINATOR_ADDRESS, else all GPUs)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check everything, report on text, model, memory and time, and write nothing",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _settings_in_words()


def add_config(parser):
    """Adds the flags for settings of all groups."""
    parser.add_argument(
        "--config",
        metavar="FILE.yaml",
        help="YAML file whose settings override the preset; recipes/NAME.yaml also finds a "
        "built-in recipe",
    )
    parser.add_argument(
        "--preset",
        choices=PRESETS,
        help="settings of the model and its training; a recipe also has its data (default: tiny, "
        "unless there is a --config)",
    )
    add_set(parser)


def run(arguments):
    of_model = [text for text in arguments.set if text.startswith(("model.", "tokenizer."))]
    if arguments.init_from is not None and of_model:
        raise InputError(
            "Expected no settings of a model that comes from another run. "
            f"Received: --init-from {arguments.init_from} --set {of_model[0]}. Leave one out."
        )
    named = _text_of(arguments)
    if "prepared" in named and (others := named.keys() & {"train", "dataset"}):
        raise InputError(
            "Expected prepared text, or text to read. Received: "
            f"prepared={named['prepared']} and {others.pop()}. Leave one out."
        )
    if "prepared" in named:
        check_exists(named["prepared"], "prepared text")
    if arguments.strategy != "multi_worker" and not os.environ.keys() & WORKERS_VARIABLES:
        check_directory(arguments.output)  # of several workers, only the first writes to it
    saved = pathlib.Path(arguments.output, "config.yaml")
    config = config_of(arguments, saved, arguments.init_from)
    of_tokenizer = [text for text in arguments.set if text.startswith("tokenizer.")]
    data, training = config.data, config.training
    owners = {"training.distill_from": training.distill_from, "data.prepared": data.prepared}
    for name, owner in owners.items():
        if owner and of_tokenizer:
            raise InputError(
                f"Expected no settings of the tokenizer, which comes with {name}. "
                f"Received: {name}={owner} and --set {of_tokenizer[0]}. Leave one out."
            )
    if saved.exists():
        data = DataConfig(**named)  # a finished run needs no text
    for corpus in () if data.prepared else data.train + data.valid:
        for path in corpus.paths:
            if path != "-":
                check_readable(path)
    console.start_keras()
    if arguments.dry_run:
        from keras_transformer.training.dry_run import dry_run as train
    else:
        from keras_transformer.training.train import train

    train(config, arguments.output, init_from=arguments.init_from, strategy=arguments.strategy)


def config_of(arguments, saved=None, init_from=None):
    """Returns the settings that the flags of `add_config` and of single settings ask for.

    Args:
        saved: path of the settings to start from where neither a preset nor a file is asked for,
            if it exists; None, or it does not: those of the preset tiny.
        init_from: path of the run from whose model a training begins, or None. Its search is taken
            too, unless a preset or `saved` has another: an imported model needs its own.
    """
    if arguments.preset is not None:
        config = Config.from_preset(arguments.preset)
    elif arguments.config is None and saved is not None and saved.exists():
        config = Config.load(saved)
    else:
        config = Config() if arguments.config else Config.from_preset("tiny")
        other = init_from and pathlib.Path(init_from, "config.yaml")
        if other and other.exists():  # the training refuses what is no run
            config = dataclasses.replace(config, decoding=Config.load(other).decoding)
    if arguments.config is not None:
        config = Config.load(arguments.config, config)
    # text that a flag names takes the place of what a recipe or a file names
    data = _text_of(arguments)
    if data.keys() & {"train", "dataset"}:
        data = {"train": [], "dataset": None, **data}
        if _is_recipe(arguments):  # whose validation text may be in other languages
            data.setdefault("valid", [])
    flags = {"data": data, "training": given_settings(arguments, "training")}
    return config.merged(flags).override(arguments.set)


def _text_of(arguments):
    """Returns the settings of the group `data` that flags give."""
    given = {split: given_settings(arguments, split) for split in ("train", "valid")}
    corpora = {split: [corpus] for split, corpus in given.items() if corpus}
    return given_settings(arguments, "data") | corpora


def _is_recipe(arguments):
    """Returns whether the settings are those of a recipe of this package."""
    path = arguments.config
    return arguments.preset in RECIPES or (
        path is not None and settings_file(path) != pathlib.Path(path)
    )


def _settings_in_words():
    """Returns the list of all settings, for the end of a help text."""
    plain = Config.from_preset("tiny")
    lines = [
        "settings for --set and FILE.yaml, with the values that they have without any flag, and"
    ]
    lines.append("in brackets with a --config that does not name them:")
    for group, group_class in GROUPS.items():
        if group == "model":
            lines.append("  model.*: model.name (transformer or rnn_seq2seq), or any constructor")
            lines.append("      argument of that class; a wrong name lists the valid ones")
            continue
        for name, setting in settings(group_class).items():
            value, default = getattr(getattr(plain, group), name), setting.default
            other = "" if value == default else f" [{yaml_word(default)}]"
            lines.append(f"  {group}.{name}: {yaml_word(value)}{other}")
            lines.append(f"      {setting.meaning}")
    lines.append("  of a corpus in data.train and data.valid:")
    for name, setting in settings(CorpusConfig).items():
        lines.append(f"  {name}: {yaml_word(setting.default)}")
        lines.append(f"      {setting.meaning}")
    return "\n".join(lines)
