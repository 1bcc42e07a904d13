"""Pictures of the attention weights of a translation.

Shapes: T target/query length, S source/key length, H heads.
"""

import math
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.plots import figures
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_transformer.translation.translator import AttentionMap

MANY_TOKENS = 24
"""From this number of tokens on, every panel has its own labels, and lines to count along."""


class Kind(NamedTuple):
    """One kind of attention in an `AttentionMap`: who attends to whom, and how it is called."""

    weights: np.ndarray
    """`(layers, H, T, S)`."""
    queries: list
    """T tokens that attend."""
    keys: list
    """S tokens that are attended to."""
    query_title: str
    key_title: str
    name: str


def attention_maps(
    attention_map: "AttentionMap", path: StrPath | None = None, layer: int = -1, kind: str = "cross"
) -> "Figure":
    """Draws all heads of a layer: a row for each token that attends, a column for each it sees.

    Args:
        attention_map: `AttentionMap` of `Translator.attention`.
        path: file to write, or None.
        layer: index into the layers of the stack; -1 is the last.
        kind: `"encoder"` or `"decoder"` for self-attention, or `"cross"`. A row of the decoder has
            the name of the token predicted at that position, a column that of the token read there.
    Raises:
        ValueError: unknown kind or layer, or an empty text or translation.
    Warns:
        UserWarning: the text or its translation was cut, or no installed font has some letters.

    Example:
        attention_maps(translator.attention("A dog runs."), "encoder.png", layer=0, kind="encoder")
    """
    found = kind_of(attention_map, kind)
    warn_if_cut(attention_map)
    weights = _heads_of(found, layer)
    queries, keys = found.queries, found.keys
    many = max(len(queries), len(keys)) >= MANY_TOKENS
    num_columns = _columns_of_grid(len(weights), len(keys) / len(queries))
    num_rows = len(weights) // num_columns
    cell, label_size = _cell_inches(queries, keys)
    query_inches, key_inches = (
        figures.label_inches(tokens, label_size) for tokens in (queries, keys)
    )
    size = (
        num_columns * (len(keys) * cell + 0.15) + query_inches * (num_columns if many else 1) + 1.0,
        num_rows * (len(queries) * cell + 0.3) + key_inches * (num_rows if many else 1) + 0.7,
    )
    title_size = min(24, max(9, 0.9 * size[0]))  # a large picture is looked at from further away
    with figures.figure_style():
        figure = figures.new_figure(size, layout="compressed")
        panels = figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
        style = {"size": label_size, "family": figures.families_for(queries + keys)}
        for head, panel in enumerate(panels.flat):
            image = _draw_weights(panel, weights[head], found, weights.max(), style)
            panel.set_title(f"head {head + 1}", pad=3, size=title_size)
            _draw_lines_to_count(panel.axhline, len(queries))
            _draw_lines_to_count(panel.axvline, len(keys))
            if many:
                panel.tick_params(labelleft=True, labelbottom=True)
        figure.suptitle(_title(found, layer), size=title_size + 1)
        figure.supxlabel(found.key_title, size=title_size)
        figure.supylabel(found.query_title, size=title_size)
        figures.colour_bar(figure, image, panels, "attention weight", title_size)
        figures.write(figure, path)
    return figure


def alignment(
    attention_map: "AttentionMap",
    path: StrPath | None = None,
    layer: int = -1,
    head: int | None = None,
) -> "Figure":
    """Draws which source tokens each token of the translation comes from, in one panel.

    It shows the cross-attention of a layer, of one head or the mean over all, as Bahdanau et al.,
    2015, draw theirs (figure 3, https://arxiv.org/abs/1409.0473); but dark is what is attended to.

    Args:
        attention_map: `AttentionMap` of `Translator.attention`.
        path: file to write, or None.
        layer: index into the layers of the decoder; -1 is the last.
        head: index into the heads of the layer, such as that of `Translator.alignment_head`; None:
            the mean of all.
    Raises:
        ValueError: unknown layer or head, no cross-attention, or an empty text or translation.
    Warns:
        UserWarning: the text or its translation was cut, or no installed font has some letters.

    Example:
        alignment(translator.attention("A dog runs."), "alignment.png")
    """
    found = kind_of(attention_map, "cross")
    warn_if_cut(attention_map)
    heads = _heads_of(found, layer)
    if head is None:
        which = f", mean of {len(heads)} heads" if len(heads) > 1 else ""
    elif 0 <= head < len(heads):
        which, heads = f", head {head + 1}", heads[head : head + 1]
    else:
        raise InputError(
            f"Expected a head from 0 to {len(heads) - 1}. Received: head={head}. Choose one of "
            "them, or leave it out for their mean."
        )
    with figures.figure_style():
        family = figures.families_for(found.queries + found.keys)
        figure, panel = _one_panel(heads.mean(axis=0), found, family, scale=1.25)
        _draw_lines_to_count(panel.axhline, len(found.queries))
        panel.xaxis.tick_top()
        panel.set_xlabel("source token")
        panel.xaxis.set_label_position("top")
        panel.set_ylabel("token of the translation")
        figure.suptitle(f"alignment: {_title(found, layer)}{which}")
        figures.write(figure, path)
    return figure


def attention_from(
    attention_map: "AttentionMap",
    token: int | str,
    path: StrPath | None = None,
    kind: str = "encoder",
) -> "Figure":
    """Draws what one token attends to: a row for each head of each layer, a column for each token.

    Args:
        attention_map: `AttentionMap` of `Translator.attention`.
        token: the token that attends, its index or its text; the mark of a space may be left out.
            In the decoder and in cross-attention it is the token predicted at that position.
        path: file to write, or None.
        kind: `"encoder"` or `"decoder"` for self-attention, or `"cross"`.
    Raises:
        ValueError: unknown kind, or a token that is not there or there more than once; an empty
            text or translation.
    Warns:
        UserWarning: the text or its translation was cut, or no installed font has some letters.

    Example:
        attention_from(translator.attention("A dog runs."), 1, "dog.png")
    """
    found = kind_of(attention_map, kind)
    warn_if_cut(attention_map)
    index = _index_of(token, found.queries)
    num_layers, num_heads = found.weights.shape[:2]
    rows = np.concatenate(found.weights[:, :, index])  # (layers * H, S)
    names = [
        f"layer {layer + 1}  head {head + 1}" if head == 0 else f"head {head + 1}"
        for layer in range(num_layers)
        for head in range(num_heads)
    ]
    with figures.figure_style():
        family = figures.families_for([found.queries[index], *found.keys])
        figure, panel = _one_panel(rows, found._replace(queries=names), family)
        for layer in range(1, num_layers):
            panel.axhline(layer * num_heads - 0.5, color="#808080", linewidth=0.6)
        panel.set_xlabel(found.key_title)
        title = f'what "{figures.labels(found.queries)[index]}" attends to: {found.name}'
        figure.suptitle(title, family=family)
        figures.write(figure, path)
    return figure


def warn_if_cut(attention_map):
    """Warns where the text or its translation is incomplete."""
    if attention_map.truncated:
        warnings.warn(
            "The text or its translation reached a limit of length and is incomplete: the picture "
            f"shows the first {len(attention_map.source_pieces)} tokens of the text and "
            f"{len(attention_map.target_pieces)} of the translation.",
            stacklevel=3,
        )


def kind_of(attention_map, kind):
    """Returns the `Kind` of an `AttentionMap`."""
    if kind not in attention_map.weights:
        raise InputError(
            f"Expected a kind of attention. Received: kind={kind!r}. "
            f"Choose one of: {', '.join(attention_map.weights) or 'none'}; linear attention has no "
            "weights, nor has a model without attention."
        )
    if not np.isfinite(attention_map.weights[kind]).all():
        raise InputError(
            f"Expected finite weights. Received: NaN or infinity in the weights of {kind!r}. The "
            "training of the model has diverged: take an earlier checkpoint, or train it anew."
        )
    source, target = attention_map.source_pieces, attention_map.target_pieces
    queries, keys, *titles = {
        "encoder": (source, source, "source token", "source token attended to"),
        "decoder": (target, attention_map.target_inputs, "predicted token", "token attended to"),
        "cross": (target, source, "predicted token", "source token attended to"),
    }[kind]
    if not queries or not keys:
        raise InputError(
            f"Expected tokens on both sides. Received: {len(queries)} that attend and {len(keys)} "
            "that they see: the text or its translation is empty."
        )
    name = "cross-attention" if kind == "cross" else f"{kind} self-attention"
    return Kind(attention_map.weights[kind], queries, keys, *titles, name)


def _heads_of(found, layer):
    """Returns the weights `(H, T, S)` of a layer of a `Kind`."""
    num_layers = len(found.weights)
    if not -num_layers <= layer < num_layers:
        raise InputError(
            f"Expected one of the {num_layers} layers. Received: layer={layer}. "
            "Count from 0, or from -1 backwards."
        )
    return found.weights[layer]


def _title(found, layer):
    num_layers = len(found.weights)
    return f"{found.name}, layer {layer % num_layers + 1} of {num_layers}"


def _index_of(token, tokens):
    """Returns the index of a token that is given by index or text."""
    if isinstance(token, str):
        texts = [text.replace(figures.SENTENCE_PIECE_SPACE, "") for text in tokens]
        places = [i for i, text in enumerate(texts) if token in (text, tokens[i])]
        if len(places) > 1:
            raise InputError(
                f"Expected a token that is there once. Received: token={token!r}, which has the "
                f"indices {', '.join(map(str, places))}. Give one of them."
            )
    else:
        places = [token] if -len(tokens) <= token < len(tokens) else []
    if not places:
        raise InputError(
            f"Expected one of the tokens {' '.join(figures.labels(tokens))}, or an index below "
            f"{len(tokens)}. Received: token={token!r}."
        )
    return places[0]


def _one_panel(weights, found, family, scale=1.0):
    """Returns a figure of weights `(rows, columns)` in one panel, and the panel.

    Args:
        found: a `Kind`, whose tokens are the labels.
        family: fonts of the labels.
        scale: factor of the size of cells and labels.
    """
    cell, label_size = _cell_inches(found.queries, found.keys)
    cell, label_size = scale * cell, min(10, scale * label_size)
    size = (
        len(found.keys) * cell + figures.label_inches(found.queries, label_size) + 1.2,
        len(found.queries) * cell + figures.label_inches(found.keys, label_size) + 0.9,
    )
    figure = figures.new_figure(size, layout="compressed")
    panel = figure.subplots()
    style = {"size": label_size, "family": family}
    image = _draw_weights(panel, weights, found, weights.max(), style)
    _draw_lines_to_count(panel.axvline, len(found.keys))
    figures.colour_bar(figure, image, panel, "attention weight")
    return figure, panel


def _draw_weights(panel, weights, found, highest, style):
    """Draws weights `(rows, columns)` with the tokens of `found` as labels; returns the image.

    Args:
        highest: the weight of the darkest colour.
        style: dict of matplotlib's arguments for the labels.
    """
    image = panel.imshow(weights, cmap="Blues", vmin=0, vmax=highest)
    panel.spines[:].set_visible(True)
    panel.tick_params(length=0, pad=2)
    panel.set_xticks(range(len(found.keys)), figures.labels(found.keys), rotation=90, **style)
    panel.set_yticks(range(len(found.queries)), figures.labels(found.queries), **style)
    return image


def _draw_lines_to_count(draw_line, num_tokens):
    """Draws a line after every fifth token, where there are many."""
    for place in range(5, num_tokens if num_tokens >= MANY_TOKENS else 0, 5):
        draw_line(place - 0.5, color="#d0d0d0", linewidth=0.5)


def _cell_inches(queries, keys):
    """Returns the width of a weight in inches and the size of its label in points."""
    cell = min(0.22, max(0.13, 3.0 / max(len(queries), len(keys))))
    return cell, min(9, 72 * cell * 0.72)


def _columns_of_grid(num_panels, panel_aspect):
    """Returns the divisor of `num_panels` that makes the picture a little wider than high."""

    def distance(num_columns):
        return abs(math.log(panel_aspect * num_columns**2 / num_panels / 1.5))

    return min((n for n in range(1, num_panels + 1) if num_panels % n == 0), key=distance)
