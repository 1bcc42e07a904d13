"""The interactive view of attention: a page of HTML that needs nothing else.

Shapes: T target/query length, S source/key length, H heads.
"""

import base64
import html
import json
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.files.atomic import replacing
from keras_transformer.plots import figures
from keras_transformer.plots.attention import kind_of, warn_if_cut
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from keras_transformer.translation.translator import AttentionMap

PAGE = pathlib.Path(__file__).with_name("attention_view.html")
ROW_PIXELS = 20
CONTROLS_PIXELS = 170
MAX_PIXELS = 900
"""A higher view scrolls."""


class AttentionView:
    """A page of HTML, which a notebook shows by itself.

    Args:
        html: str, the whole page.
        height: pixels that the page takes in a notebook.
    """

    def __init__(self, html: str, height: int) -> None:
        self.html = html
        self.height = height

    def _repr_html_(self) -> str:
        # a frame of its own: several views on one page, and no style of the notebook in them
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {self.height}px; border: 0" title="Attention weights">'
            "</iframe>"
        )


def attention_view(attention_map: "AttentionMap", path: StrPath | None = None) -> AttentionView:
    """Makes an interactive page of all kinds, layers and heads of attention.

    It shows two columns of tokens with a line for each weight, in the colour of its head; a token
    under the pointer shows its own lines alone. It needs no network. Weights are rounded to one
    byte, so they are exact to 0.002; the page of 60 tokens on both sides, 6 layers and 8 heads has
    about 0.7 MB.

    Args:
        attention_map: `AttentionMap` of `Translator.attention`.
        path: `.html` file to write, or None.
    Returns:
        An `AttentionView`: a notebook shows it, and `html` is the page as str.
    Raises:
        ValueError: another suffix, a model without attention weights, or an empty text or
            translation.
    Warns:
        UserWarning: the text or its translation was cut.

    Example:
        attention_view(translator.attention("A dog runs."), "attention.html")
    """
    if path is not None:
        figures.check_format(path, ("html",))
    # a model without weights is refused as one without cross-attention
    kinds = [kind_of(attention_map, kind) for kind in attention_map.weights or ("cross",)]
    warn_if_cut(attention_map)
    data = [
        {
            "id": name,
            "name": kind.name,
            "num_layers": kind.weights.shape[0],
            "num_heads": kind.weights.shape[1],
            "queries": figures.labels(kind.queries),
            "keys": figures.labels(kind.keys),
            "queries_title": kind.query_title,
            "keys_title": kind.key_title,
            "weights": _one_byte_each(kind.weights),
        }
        for name, kind in zip(attention_map.weights, kinds, strict=True)
    ]
    page = PAGE.read_text(encoding="utf-8").replace("DATA", _json_in_html({"kinds": data}), 1)
    num_tokens = max(len(tokens) for kind in kinds for tokens in (kind.queries, kind.keys))
    height = min(CONTROLS_PIXELS + ROW_PIXELS * num_tokens, MAX_PIXELS)
    if path is not None:
        with replacing(path) as partial:
            partial.write_text(page, encoding="utf-8")
    return AttentionView(page, height)


def _one_byte_each(weights):
    """Returns weights `(layers, H, T, S)` as base64 of one byte each, 255 for 1."""
    return base64.b64encode(np.rint(np.clip(weights, 0, 1) * 255).astype("uint8")).decode()


def _json_in_html(value):
    """Returns JSON that a script element may contain, whatever the strings in it are."""
    return json.dumps(value).replace("<", "\\u003c")
