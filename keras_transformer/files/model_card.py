"""The model card of an export: what the model is, as JSON for programs and Markdown for people.

A card is a dict of sections, each a dict from a label to a string. All that show it, the Markdown,
`keras-transformer info` and the server's page, show the same sections.
"""

import html
import json
import re

from keras_transformer.files.regular import is_named, read_regular

CARD_JSON, CARD_MARKDOWN = "model_card.json", "model_card.md"


def write_card(directory, card, markdown_name=CARD_MARKDOWN, front_matter=""):
    """Writes both forms of a card.

    Args:
        directory: `pathlib.Path` of the version.
        card: dict of sections.
        markdown_name: name of the Markdown file.
        front_matter: str, what stands before the Markdown.
    """
    text = json.dumps(card, ensure_ascii=False, indent=2) + "\n"
    (directory / CARD_JSON).write_text(text, "utf-8")
    (directory / markdown_name).write_text(front_matter + card_as_markdown(card), "utf-8")


def card_as_markdown(card):
    """Returns a card as Markdown, with a table for each section."""
    lines = ["# Model card"]
    for title, facts in card.items():
        lines += ["", f"## {title.capitalize()}", "", "| | |", "|---|---|"]
        lines += [f"| {_escaped(label)} | {_escaped(value)} |" for label, value in facts.items()]
    return "\n".join(lines) + "\n"


def read_card(directory):
    """Returns the card of an export; {} where it has none, or one that is none of ours."""
    if not is_named(directory, CARD_JSON):
        return {}
    try:
        card = json.loads(read_regular(directory, CARD_JSON, "a model card"))
    except (OSError, ValueError, RecursionError):
        return {}
    is_card = isinstance(card, dict) and all(
        isinstance(facts, dict) and all(isinstance(value, str) for value in facts.values())
        for facts in card.values()
    )
    return card if is_card else {}


def _escaped(text):
    """Returns a text that Markdown shows as it is, in a cell of a table."""
    text = html.escape(re.sub(r"\s+", " ", text), quote=False)
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text)
