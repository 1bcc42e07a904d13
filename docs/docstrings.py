"""Lets mkdocstrings read the sections of our docstrings that are not quite Google's."""

import re
import textwrap

import griffe

NAMES = "Args", "Call arguments", "Returns", "Raises", "Warns", "Attributes", "Example"
SECTION_WITHOUT_SPACE = re.compile(rf"(?<=\S)\n(?=(?:{'|'.join(NAMES)}):$)", re.MULTILINE)
LIST = re.compile(r"(?<=:)\n(?= *- )")
RETURNS = re.compile(r"^Returns:\n((?: .*\n?|\n)+)", re.MULTILINE)
EXAMPLE = re.compile(r"^Example:\n((?:.|\n)*)\Z", re.MULTILINE)
SOURCE = "https://github.com/keras-transformer/keras_transformer/blob/main"
TITLE = '<span class="doc-section-title">{}:</span>'


class Sections(griffe.Extension):
    """Gives `Call arguments:` a list of arguments, `Returns:` a text, and `Example:` its code.

    In Google's style, a text under `Returns:` begins with a type and a colon. Classes and functions
    also get a link to their source.
    """

    def on_object(self, *, obj, loader, **kwargs):
        if obj.docstring is None:
            return
        text = _as_google_style(obj.docstring.value)
        if obj.parent is not None and obj.parent.is_module and (obj.is_class or obj.is_function):
            file = f"{obj.relative_package_filepath.as_posix()}#L{obj.lineno}"
            text = f"{text.rstrip()}\n\n[Source code]({SOURCE}/{file})"
        obj.docstring.value = text


def _as_google_style(text):
    text = SECTION_WITHOUT_SPACE.sub("\n\n", text)
    text = LIST.sub("\n\n", text)  # Markdown needs an empty line before a list
    text = re.sub(r"^Call arguments:$", "Args: Call arguments:", text, flags=re.MULTILINE)
    text = RETURNS.sub(_text, text)
    return EXAMPLE.sub(_code, text)


def _text(match):
    return f"{TITLE.format('Returns')}\n\n{textwrap.dedent(match[1]).strip()}\n\n"


def _code(match):
    code = textwrap.dedent(match[1]).strip("\n")
    language = "pycon" if code.startswith(">>>") else "python"
    return f"{TITLE.format('Example')}\n\n```{language}\n{code}\n```"
