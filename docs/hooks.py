"""What MkDocs calls while it builds the site: pages from the code, and the list of guides.

The pages `reference/*.md` are generated, except `index.md`: one per module of `MODULES`, from its
public names; the settings, from the dataclasses and constructors that define them; and the
commands, from the parser.
"""

import argparse
import ast
import contextlib
import functools
import inspect
import pathlib
import re

import griffe
from mkdocs.structure.files import File

from keras_transformer.cli import command_parser
from keras_transformer.config import GROUPS, CorpusConfig
from keras_transformer.config.presets import MODEL_PRESETS, PRESETS, RECIPES
from keras_transformer.config.settings import LARGEST, in_words, settings
from keras_transformer.config.yaml import yaml_word

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"
MODULES = (
    "layers",
    "models",
    "tokenizers",
    "data",
    "data.cleaning",
    "data.pair_filters",
    "data.shards",
    "config",
    "training",
    "translation.translator",
    "translation.terminology",
    "translation.markup",
    "translation.markup_translator",
    "translation.reranking",
    "translation.explanation",
    "translation.lexicon",
    "decoding",
    "translation.evaluation",
    "translation.comparison",
    "plots",
    "checks",
    "export",
    "convert",
)


def on_config(config):
    """Lists the guides in the order of their index, and the generated pages."""
    index = (ROOT / "docs/guides/index.md").read_text(encoding="utf-8")
    guides = dict.fromkeys(re.findall(r"\]\(([\w/-]+\.md)\)", index))
    for entry in config.nav:
        if "Guides" in entry:
            entry["Guides"] = ["guides/index.md", *(f"guides/{page}" for page in guides)]
        if "Reference" in entry:
            pages = ("index", "commands", "settings", *map(page_name, MODULES))
            entry["Reference"] = [f"reference/{page}.md" for page in pages]
    return config


def on_files(files, config):
    """Adds the generated pages."""
    pages = {"commands": commands_page(), "settings": settings_page()}
    pages |= {page_name(module): module_page(module) for module in MODULES}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def page_name(module):
    """Returns the name of a module's page: the last part of its own."""
    return module.rpartition(".")[2]


def module_page(module):
    """Returns the page of a subpackage or module: its docstring, then its public names."""
    path = PACKAGE / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines = [f"# keras_transformer.{module}", "", _without_example(ast.get_docstring(tree)), ""]
    for name in _public_names(tree):
        # griffe takes a function for the module of the same name, if there is one
        within = f"{module}.{name}" if (path.parent / f"{name}.py").exists() else module
        lines += [f"::: keras_transformer.{within}.{name}", ""]
    return "\n".join(lines)


def _public_names(tree):
    """Returns the names in a module's `__all__`, or else what it defines."""
    constants = {}  # which `__all__` may name
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "__all__":
                return eval(ast.unparse(node.value), {}, constants)
            with contextlib.suppress(ValueError):
                constants[node.targets[0].id] = ast.literal_eval(node.value)
    defined = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [node.name for node in defined if not node.name.startswith("_")]


def _without_example(text):
    return text.split("\n\n>>>")[0]


def commands_page():
    """Returns the page of all commands, from the parser of the program."""
    parser = command_parser()
    lines = ["# Commands", "", parser.description, ""]
    return "\n".join(lines + _subcommands(parser, level=2))


def _subcommands(parser, level):
    lines = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                lines += [f"{'#' * level} {subparser.prog.partition(' ')[2]}", ""]
                lines += [subparser.description or "", "", "```text", _usage(subparser), "```", ""]
                lines += _options(subparser)
                lines += _subcommands(subparser, level + 1)
    return lines


def _usage(parser):
    # the width does not depend on the terminal
    parser.formatter_class = functools.partial(argparse.HelpFormatter, width=90)
    return parser.format_usage().removeprefix("usage: ").rstrip()


def _options(parser):
    actions = [a for a in parser._actions if not isinstance(a, argparse._SubParsersAction)]
    actions = [a for a in actions if "--help" not in a.option_strings]
    if not actions:
        return []
    lines = ["| argument | meaning |", "|---|---|"]
    for action in actions:
        value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
        if action.choices is not None:
            value = "{" + ",".join(map(str, action.choices)) + "}"
        values = value if isinstance(value, tuple) else (value,)
        name = " ".join([", ".join(action.option_strings), *values]).strip()
        required = " **Required.**" if action.option_strings and action.required else ""
        meaning = ((action.help or "") % vars(action)).replace(
            "the settings below", "the [settings](settings.md)"
        )
        lines.append(f"| `{name}` | {_cell(meaning[:1].upper() + meaning[1:])}.{required} |")
    return [*lines, ""]


def settings_page():
    """Returns the page of all settings of a run, and of the presets."""
    lines = [
        "# Settings",
        "",
        "Every setting of a run. Change one with `--set group.key=value`, or in a YAML file that",
        "is given as `--config`. A run's own settings are in its `config.yaml`.",
        "",
    ]
    for group, group_class in GROUPS.items():
        lines += [f"## {group}", ""]
        if group == "model":
            lines += _model_settings()
            continue
        lines += _group_settings(f"{group}.", group_class)
        if group == "data":
            lines += ["### A corpus", "", *_group_settings("", CorpusConfig)]
    return "\n".join(lines + _presets())


def _group_settings(prefix, group_class):
    lines = [inspect.getdoc(group_class), ""]
    lines += ["| setting | default | accepts | meaning |", "|---|---|---|---|"]
    for name, setting in settings(group_class).items():
        default, expected = yaml_word(setting.default), in_words(setting.annotation)
        expected = re.sub(rf"from (\d+) to {LARGEST}", r"of at least \1", expected)
        cells = f"`{prefix}{name}`", f"`{default}`", _cell(expected), _cell(setting.meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _model_settings():
    """Returns the constructor arguments of the models that `train` trains, read without Keras."""
    package = griffe.load("keras_transformer", search_paths=[ROOT])
    lines = [
        "`model.name` is `transformer` (the default) or `rnn_seq2seq`. The other settings are the",
        "arguments of that model's class. The sizes of the vocabularies come from the tokenizer.",
        "",
    ]
    for name, class_name in (("transformer", "Transformer"), ("rnn_seq2seq", "RnnSeq2Seq")):
        model = package[f"models.{class_name}"]
        sections = model.docstring.parse("google", warnings=False)
        (arguments,) = (s for s in sections if s.kind.value == "parameters" and not s.title)
        lines += [
            f"### {name}",
            "",
            f"Arguments of [`{class_name}`][keras_transformer.models.{class_name}].",
            "",
        ]
        lines += ["| setting | default | meaning |", "|---|---|---|"]
        for argument in arguments.value:
            if not argument.name.endswith("vocab_size"):
                default = yaml_word(ast.literal_eval(str(argument.value)))
                meaning = _cell(argument.description[:1].upper() + argument.description[1:])
                lines.append(f"| `model.{argument.name}` | `{default}` | {meaning} |")
        lines.append("")
    return lines


def _presets():
    lines = [
        "## Presets",
        "",
        f"`keras-transformer train --preset` knows {', '.join(f'`{name}`' for name in PRESETS)}.",
        "The other presets are for `from_preset` of their model. A setting that a preset does not",
        "name has the default above.",
        "",
    ]
    for model, presets in MODEL_PRESETS.items():
        for preset in presets:
            lines += _preset(preset, f"{preset}.yaml", f"A preset of the model `{model}`.")
    for recipe in RECIPES:
        meaning = "A [recipe](../guides/recipes.md), with its data."
        lines += _preset(recipe, f"recipes/{recipe}.yaml", meaning)
    return lines


def _preset(name, file, meaning):
    text = (PACKAGE / "config/presets" / file).read_text(encoding="utf-8").strip()
    return [f"### {name}", "", meaning, "", "```yaml", text, "```", ""]


def _cell(text):
    """Returns a text for a table cell; what is in braces becomes code."""
    text = re.sub(r"(\{[^}]*\})", r"`\1`", " ".join(text.split()))
    return text.replace("|", "\\|").removesuffix(".")
