"""The command `keras-transformer`: each subcommand parses, and calls one function of the library.

Keras and TensorFlow load after the arguments have been checked, so help and usage errors come at
once. `console.py` says what the exit codes are.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import sys
import warnings

from keras_transformer import console
from keras_transformer.config import (
    GROUPS,
    PRESETS,
    STRATEGIES,
    Config,
    ConfigBeforeKeras,
    DataConfig,
    DecodingConfig,
    TrainingConfig,
)
from keras_transformer.core_yaml import yaml_word
from keras_transformer.serving.settings import ServingConfig
from keras_transformer.settings import LARGEST, plain_type, settings
from keras_transformer.text_files import (
    check_directory,
    check_readable,
    check_utf8,
    check_writable,
    iterate_lines,
    writing_lines,
)

SERVING_LIBRARIES = ("grpc_health", "h11", "prometheus_client")
CHUNK_LINES = 1024
"""Lines translated before the next are read: memory stays bounded, however long the input."""


def main(arguments=None):
    """Runs the command with a list of arguments (None: those of the process).

    Returns:
        The exit code.
    Raises:
        SystemExit: with code 2 for a usage error, 0 for `--help`, 143 when terminated.
    """

    def command():
        parsed = _parser().parse_args(arguments)
        parsed.command(parsed)

    return console.run(command)


# === Subcommands ===


def _quickstart(arguments):
    check_directory(arguments.output)
    console.check_backend(for_export=True)
    console.start_keras()
    from keras_transformer import quickstart

    quickstart.run(arguments.output)


def _train(arguments):
    of_model = [text for text in arguments.set if text.startswith(("model.", "tokenizer."))]
    if arguments.init_from is not None and of_model:
        raise ValueError(
            "Expected no settings of a model that comes from another run. "
            f"Received: --init-from {arguments.init_from} --set {of_model[0]}. Leave one out."
        )
    if arguments.strategy != "multi_worker" and "TF_CONFIG" not in os.environ:
        check_directory(arguments.output)  # which of several workers the first alone needs
    data = _settings(arguments, ConfigBeforeKeras).data
    if pathlib.Path(arguments.output, "config.yaml").exists():
        data = DataConfig(**_given(arguments, "data"))  # a run that has ended needs no text
    for path in (data.source_train, data.target_train, data.source_valid, data.target_valid):
        if path is not None:
            check_readable(path)
    console.start_keras()
    from keras_transformer.training.train import train

    config = _settings(arguments, Config)
    train(config, arguments.output, init_from=arguments.init_from, strategy=arguments.strategy)


def _settings(arguments, config_class):
    """Returns the settings of a training: named ones, else those of the run, else tiny's."""
    saved = pathlib.Path(arguments.output, "config.yaml")
    if arguments.preset is not None:
        config = config_class.from_preset(arguments.preset)
    elif arguments.config is not None:
        config = config_class()
    elif saved.exists():
        config = config_class.load(saved)
    else:
        config = config_class.from_preset("tiny")
    if arguments.config is not None:
        config = config_class.load(arguments.config, config)
    flags = {group: _given(arguments, group) for group in ("data", "training")}
    return config.merged(flags).override(arguments.set)


def _translate(arguments):
    if arguments.input is not None:
        check_readable(arguments.input)
    if arguments.output is not None:
        check_writable(arguments.output)
    translator = _load_translator(arguments)
    is_dialogue = arguments.input is None and sys.stdin.isatty()
    answers = _translated(
        translator,
        iterate_lines(arguments.input),
        arguments.n_best,
        chunk_lines=1 if is_dialogue else CHUNK_LINES,
        show_progress=arguments.output is not None or not sys.stdout.isatty(),
    )
    incomplete = []
    with writing_lines(arguments.output) as write:
        for number, translations in enumerate(answers, start=1):
            for translation in translations:
                columns = [" ".join(translation.text.splitlines())]
                if arguments.scores or arguments.n_best > 1:
                    columns.insert(0, f"{translation.score:.4f}")
                if arguments.n_best > 1:
                    columns.insert(0, str(number))
                write("\t".join(columns))
            if translations[0].truncated:
                incomplete.append(number)
    if incomplete:
        console.say(
            f"warning: {len(incomplete)} of {number} lines, or their translations, reached a limit "
            f"of length and are incomplete; the first is line {incomplete[0]}"
        )


def _evaluate(arguments):
    _find_model(arguments)
    references = [list(iterate_lines(path)) for path in arguments.target]
    from keras_transformer.evaluation import bleu, chrf

    # what is wrong with the references or the tokenizer shows now, not after the translation
    bleu(references[0], references, arguments.lowercase, arguments.tokenize, hints=False)
    hypotheses = _hypotheses(arguments, references)
    scores = [
        bleu(hypotheses, references, arguments.lowercase, arguments.tokenize),
        chrf(hypotheses, references, arguments.lowercase),
    ]
    if arguments.json:
        values = {s.name: {"score": s.value, "signature": s.signature} for s in scores}
        print(json.dumps(values))
    else:
        print(*scores, sep="\n")


def _find_model(arguments):
    """Takes the directory at the end of --target, where a file stands, for the model."""
    if arguments.model is None and arguments.hypothesis is None:
        *target, last = arguments.target
        if not (target and pathlib.Path(last).is_dir()):
            arguments.refuse(
                "one of the arguments MODEL --hypothesis is required; all that follows --target "
                f"is references: {' '.join(arguments.target)}"
            )
        arguments.target, arguments.model = target, last


def _hypotheses(arguments, references):
    """Returns the translations to score, out of a file or of a model."""
    if arguments.hypothesis is not None:
        flags = _given(arguments, "decoding") or arguments.checkpoint or arguments.source
        if flags is not None and flags != {}:
            raise ValueError(
                "Expected a model for --source and the flags of the search. "
                f"Received: --hypothesis {arguments.hypothesis}. Leave these flags out."
            )
        return list(iterate_lines(arguments.hypothesis))
    if arguments.source is None:
        raise ValueError(
            "Expected the text for the model to translate. "
            f"Received: {arguments.model} without --source. Add --source F."
        )
    source = list(iterate_lines(arguments.source))
    for path, lines in zip(arguments.target, references, strict=True):
        if len(lines) != len(source):
            raise ValueError(
                "Expected as many target lines as source lines. Received: "
                f"{arguments.source}: {len(source)} lines, {path}: {len(lines)} lines. "
                "Line i of each file must belong to the same sentence."
            )
    translator = _load_translator(arguments)
    return [best.text for (best,) in _translated(translator, source)]


def _export(arguments):
    check_directory(arguments.directory)
    console.check_backend(for_export=True)
    translator = _load_translator(arguments, of_run=True)
    from keras_transformer.export import export_saved_model

    path = export_saved_model(
        translator,
        arguments.directory,
        n_best=arguments.n_best,
        version=arguments.version,
        split_sentences=arguments.split_sentences,
    )
    try:
        print(path, flush=True)
    except OSError as error:
        raise OSError(
            f"The export is complete, at {path}. Its path could not be printed: {error.strerror}"
        ) from None


def _serve(arguments):
    given = _given(arguments, "serving")
    serving = ServingConfig(**given)
    labels = dict(map(_label, arguments.label))
    if not pathlib.Path(arguments.directory).is_dir():
        raise ValueError(
            "Expected the directory of an export. "
            f"Received: {arguments.directory}: no such directory. Check the name."
        )
    console.start_keras()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong, we say
    try:
        from keras_transformer.serving.server import Server
    except ModuleNotFoundError as error:
        if error.name not in SERVING_LIBRARIES:
            raise
        raise ValueError(
            f"Expected the libraries that serving needs. Received: {error}. "
            'Install them, in the clone of this package: pip install ".[serving]".'
        ) from None

    server = Server(
        arguments.directory,
        arguments.model_name,
        arguments.host,
        arguments.port,
        arguments.grpc_port,
        arguments.versions,
        labels,
        serving,
    )
    try:
        server.start()
        console.say(
            f"serving {server.model_name} at http://{server.host}:{server.port}/v1/models/"
            f"{server.model_name} and, by gRPC, at {server.host}:{server.grpc_port}"
        )
        server.wait()
    except (KeyboardInterrupt, SystemExit) as signalled:
        server.stop()
        console.end_at_once(signalled)  # a version that is being loaded would hold Python up


def _label(text):
    """Returns (label, version) of a flag such as `stable=2`."""
    label, equals, number = text.partition("=")
    if not (label and equals and _is_version(number)):
        raise ValueError(
            f"Expected a label and a version. Received: --label {text}. Write it as stable=2."
        )
    return label, int(number)


def _is_version(text):
    return text.isdecimal() and len(text) < 20 and int(text) < 2**63


def _whole_number(least, most):
    """Returns the type of a flag whose value is a whole number within these limits."""

    def number(text):
        with contextlib.suppress(ValueError):
            if least <= int(text) <= most:
                return int(text)
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {least} to {most}; received: {text}"
        )

    return number


def _versions(text):
    """Returns the versions that a flag names, as `serving.server.Server` takes them."""
    if text in ("latest", "all"):
        return text
    numbers = text.split(",")
    if not all(map(_is_version, numbers)):
        raise argparse.ArgumentTypeError(
            f"expected latest, all, or versions such as 1,2; received: {text}"
        )
    return set(map(int, numbers))


def _plot(arguments):
    check_utf8("the sentence", arguments.sentence)
    check_writable(arguments.output)
    from keras_transformer.plots import attention_maps, check_format

    check_format(arguments.output)
    translator = _load_translator(arguments, of_run=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        attention_maps(translator.attention(arguments.sentence), arguments.output)
    for warning in caught:
        console.say(f"warning: {warning.message}")


def _load_translator(arguments, of_run=False):
    """Returns the translator of a run, with the search that the flags ask for, or of an export."""
    given = _given(arguments, "decoding")
    DecodingConfig(**given)
    if not pathlib.Path(arguments.model).is_dir():
        raise ValueError(
            "Expected the directory of a run or of an export. "
            f"Received: {arguments.model}: no such directory. Check the name."
        )
    console.start_keras()
    from keras_transformer.translator import Translator

    translator = Translator.load(arguments.model, arguments.checkpoint)
    if isinstance(translator, Translator):
        decoding = dataclasses.replace(translator.decoding, **given)
        return Translator(
            translator.model, translator.tokenizer, translator.target_tokenizer, decoding
        )
    if of_run:
        raise ValueError(
            f"Expected the directory of a run. Received: {arguments.model}: an export. "
            "Name the run that it was made from."
        )
    for name, value in given.items():
        exported = getattr(translator.decoding, name)
        if value != exported:
            raise ValueError(
                "Expected the search that is fixed in the export. "
                f"Received: {_flag(name)} {value}, exported with {_flag(name)} {exported}. "
                "Leave it out, or translate with the run."
            )
    return translator


def _translated(translator, lines, n_best=1, chunk_lines=CHUNK_LINES, show_progress=True):
    """Yields the list of translations of each line, chunk by chunk."""
    from tqdm import tqdm

    lines = iter(lines)
    # disable=None: silent where standard error is no terminal
    with tqdm(unit=" lines", disable=None if show_progress else True) as progress:
        while chunk := list(itertools.islice(lines, chunk_lines)):
            yield from translator.translate(chunk, n_best)
            progress.update(len(chunk))


# === Arguments ===


class _Parser(argparse.ArgumentParser):
    """Says a usage error in one line; an option's name is not guessed from its beginning."""

    def __init__(self, **arguments):
        super().__init__(allow_abbrev=False, **arguments)

    def print_help(self, file=None):
        # argparse's own hides that nothing can be written
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (`{self.prog} --help` shows the usage)\n")


def _parser():
    parser = _Parser(
        prog=console.PROGRAM,
        description="Trains Transformers on parallel text, translates with them, scores them and "
        "exports them for TensorFlow Serving. Files are UTF-8 text, one sentence a line, gzip "
        "where the name ends in .gz.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name, function, summary, **arguments):
        description = f"{summary[0].upper()}{summary[1:]}."
        added = commands.add_parser(name, help=summary, description=description, **arguments)
        added.set_defaults(command=function, refuse=added.error)
        return added

    quickstart = command(
        "quickstart", _quickstart, "train, translate and export a small model, in minutes"
    )
    quickstart.add_argument(
        "--output", metavar="DIR", default="quickstart", help="directory for all that it makes"
    )

    train = command(
        "train",
        _train,
        "train a model on parallel text, or go on with a run that was stopped",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_settings_in_words(),
    )
    _add_settings(train, DataConfig, "F", ["source_train", "target_train"])
    _add_settings(train, DataConfig, "F", ["source_valid", "target_valid"])
    _add_settings(train, DataConfig, "NAME", ["dataset"])
    train.add_argument("--output", metavar="RUN", required=True, help="directory of the run")
    train.add_argument("--config", metavar="FILE.yaml", help="settings, over those of the preset")
    train.add_argument(
        "--preset",
        choices=PRESETS,
        help="model and recipe (default: tiny, where there is no --config)",
    )
    train.add_argument(
        "--init-from", metavar="RUN", help="run whose weights and tokenizer to start from"
    )
    _add_settings(train, TrainingConfig, "N", ["max_steps"])
    _add_settings(train, TrainingConfig, "M", ["max_minutes"])
    _add_settings(train, TrainingConfig, "S", ["seed"])
    _add_settings(train, TrainingConfig, None, ["deterministic"])
    train.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="auto",
        help="devices that share a step (default: auto: the workers of TF_CONFIG, else all GPUs)",
    )
    train.add_argument(
        "--set",
        metavar="group.key=value",
        nargs="+",
        action="extend",
        default=[],
        help="any of the settings below",
    )

    translate = command("translate", _translate, "translate text, one line in, one line out")
    _add_model(translate, "MODEL")
    translate.add_argument("--input", metavar="F", help="text (default: standard input)")
    translate.add_argument("--output", metavar="F", help="translations (default: standard output)")
    _add_decoding(translate)
    translate.add_argument(
        "--n-best",
        metavar="K",
        type=_whole_number(1, LARGEST),
        default=1,
        help="translations of each line; for K above 1 K lines of: number of the input line, tab, "
        "score, tab, translation",
    )
    translate.add_argument(
        "--scores", action="store_true", help="put the score and a tab before each translation"
    )

    evaluate = command("evaluate", _evaluate, "score translations by BLEU and chrF")
    translations = evaluate.add_mutually_exclusive_group()
    _add_model(translations, "MODEL", nargs="?")
    translations.add_argument(
        "--hypothesis", metavar="F", help="translations to score, in place of a model's"
    )
    evaluate.add_argument("--source", metavar="F", help="text that the model translates")
    evaluate.add_argument(
        "--target", metavar="F", nargs="+", required=True, help="one or more reference translations"
    )
    _add_decoding(evaluate)
    evaluate.add_argument("--lowercase", action="store_true", help="ignore case")
    evaluate.add_argument(
        "--tokenize",
        metavar="NAME",
        default="13a",
        help="sacreBLEU's tokenizer for BLEU: 13a, none, intl, char, zh and others (default: 13a)",
    )
    evaluate.add_argument("--json", action="store_true", help="print the scores as JSON")

    export = command("export", _export, "write the SavedModel that takes and returns strings")
    _add_model(export, "RUN")
    export.add_argument("directory", metavar="DIR", help="where to write the version's directory")
    _add_decoding(export)
    export.add_argument(
        "--n-best",
        metavar="K",
        type=_whole_number(1, LARGEST),
        default=1,
        help="translations of the signature n_best (default: 1)",
    )
    export.add_argument(
        "--split-sentences",
        action="store_true",
        help="translate a text sentence by sentence, so that long ones are not cut",
    )
    export.add_argument(
        "--version", metavar="N", type=int, help="version (default: the next free one)"
    )

    serve = command(
        "serve", _serve, "serve an export by REST and gRPC, with TensorFlow Serving's contract"
    )
    serve.add_argument("directory", metavar="DIR", help="directory of an export's versions")
    serve.add_argument(
        "--model-name", metavar="NAME", help="name in requests (default: the directory's)"
    )
    serve.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="default: 127.0.0.1, this machine"
    )
    for flag, port in (("--port", 8501), ("--grpc-port", 8500)):
        number = _whole_number(0, 65535)
        serve.add_argument(flag, metavar="N", type=number, default=port, help=f"default: {port}")
    serve.add_argument(
        "--versions",
        metavar="WHICH",
        type=_versions,
        default="latest",
        help="latest, all, or numbers such as 1,2 (default: latest); new ones are found",
    )
    serve.add_argument(
        "--label",
        metavar="NAME=N",
        action="append",
        default=[],
        help="name for a version, which is served too; can be repeated",
    )
    for name, setting in settings(ServingConfig).items():
        metavar = "N" if plain_type(setting.annotation) is int else "X"
        _add_settings(serve, ServingConfig, metavar, [name], show_default=True)

    plot = command("plot", _plot, "draw the attention of a translation")
    _add_model(plot, "RUN")
    plot.add_argument("sentence", metavar="SENTENCE", help="text to translate")
    plot.add_argument("--output", metavar="F.png", required=True, help="PNG, PDF or SVG file")
    plot.set_defaults(checkpoint=None)
    return parser


def _add_model(parser, metavar, **arguments):
    meaning = "directory of a run"
    if metavar == "MODEL":
        meaning += ", or of an export (its highest version), or of an export's version"
    parser.add_argument("model", metavar=metavar, help=meaning, **arguments)


def _add_decoding(parser):
    group = parser.add_argument_group("search", "Fixed in an export; of a run, its own settings.")
    _add_settings(group, DecodingConfig, "N", ["beam_size"])
    _add_settings(group, DecodingConfig, "ALPHA", ["length_penalty"])
    _add_settings(group, DecodingConfig, "N", ["max_length"])
    group.add_argument(
        "--checkpoint",
        choices=("best", "last", "averaged"),
        help="weights of a run (default: those that validation found better, best or averaged)",
    )


def _add_settings(parser, group_class, metavar, names, show_default=False):
    """Adds a flag for each of some settings; its help is the setting's meaning."""
    for name in names:
        setting = settings(group_class)[name]
        kind = plain_type(setting.annotation)
        meaning = setting.meaning[0].lower() + setting.meaning[1:].removesuffix(".")
        if show_default:
            meaning = f"{meaning} (default: {yaml_word(setting.default)})"
        arguments = {"dest": f"{group_class.GROUP}.{name}", "help": meaning.replace("%", "%%")}
        if kind is bool:
            arguments.update(action="store_const", const=True)
        else:
            arguments.update(type=kind, metavar=metavar)
        parser.add_argument(_flag(name), **arguments)


def _given(arguments, group):
    """Returns the settings of a group that flags give: dict from name to value."""
    return {
        name.partition(".")[2]: value
        for name, value in vars(arguments).items()
        if name.startswith(f"{group}.") and value is not None
    }


def _flag(name):
    return f"--{name.replace('_', '-')}"


def _settings_in_words():
    """Returns the list of all settings, for the end of a help text."""
    lines = ["settings for --set and FILE.yaml, with their defaults:"]
    for group, group_class in GROUPS.items():
        if group == "model":
            lines.append("  model.*: the arguments of keras_transformer.models.Transformer, as")
            lines.append("      model.attention=local; a wrong name is answered by all of them")
            continue
        for name, setting in settings(group_class).items():
            lines.append(f"  {group}.{name}: {yaml_word(setting.default)}")
            lines.append(f"      {setting.meaning}")
    return "\n".join(lines)
