"""The pages of the site that are made from the code, and the docstrings that mkdocstrings reads."""

import importlib.util
import pathlib

import pytest

from keras_transformer.cli import command_parser
from keras_transformer.config import GROUPS
from keras_transformer.config.settings import settings

pytest.importorskip("mkdocs", reason="the extra `docs` is missing")
pytest.importorskip("griffe", reason="the extra `docs` is missing")
ROOT = pathlib.Path(__file__).parents[1]


def module_of_docs(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks():
    return module_of_docs("hooks")


def test_every_option_of_every_command_is_listed(hooks):
    page = hooks.commands_page()

    def check(parser):
        for action in parser._actions:
            subparsers = action.choices if isinstance(action.choices, dict) else {}
            for name, subparser in subparsers.items():
                assert f" {name}\n" in page
                check(subparser)
            for option in set(action.option_strings) - {"-h", "--help"}:
                assert f"`{option}" in page, f"{parser.prog} {option}"

    check(command_parser())


def test_every_setting_is_listed_with_its_meaning(hooks):
    page = hooks.settings_page()
    for group, group_class in GROUPS.items():
        if group != "model":
            for name, setting in settings(group_class).items():
                assert f"`{group}.{name}`" in page
                assert setting.meaning.removesuffix(".").replace("|", "\\|") in page
    for name in ("num_heads", "cross_attention", "input_feeding"):  # of both models
        assert f"`model.{name}`" in page


def test_every_preset_is_listed_with_its_text(hooks):
    page = hooks.settings_page()
    files = [path for path in (ROOT / "keras_transformer/config/presets").rglob("*.yaml")]
    assert len(files) > 15
    for path in files:
        assert f"\n### {path.stem}\n" in page and path.read_text("utf-8").strip() in page


def test_the_pages_of_the_subpackages_list_their_public_names(hooks):
    import keras_transformer.training

    page = hooks.module_page("training")
    for name in keras_transformer.training.__all__:
        assert f".{name}\n" in page
    assert "::: keras_transformer.training.train.train\n" in page  # not the module of that name
    page = hooks.module_page("translation.translator")
    assert page.startswith("# keras_transformer.translation.translator\n")
    assert "::: keras_transformer.translation.translator.Translator\n" in page


def test_sections_of_docstrings_that_are_not_googles():
    text = """Adds.

    Args:
        x: first; one of:
            - a list;
            - an item.
    Call arguments:
        y: second.
    Returns:
        The sum: `x + y`.

    Example:
    >>> add(1)(2)
    3
    """
    text = module_of_docs("docstrings")._as_google_style(
        "\n".join(line.removeprefix("    ") for line in text.splitlines())
    )
    assert "one of:\n\n        - a list" in text
    assert "\n\nArgs: Call arguments:\n    y: second." in text
    assert "Returns:</span>\n\nThe sum: `x + y`.\n\n" in text
    assert "```pycon\n>>> add(1)(2)\n3\n```" in text
