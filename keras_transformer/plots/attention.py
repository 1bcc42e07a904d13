"""Pictures of attention weights.

Shapes: T target/query length, S source/key length, H heads.
"""

import math
import warnings

from keras_transformer.errors import InputError
from keras_transformer.fonts import families_for
from keras_transformer.plots.drawing import (
    colour_bar,
    house_style,
    label_inches,
    labels,
    new_figure,
    write,
)


def attention_maps(attention_map, path=None, layer=-1, kind="cross"):
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
    if kind not in attention_map.weights:
        raise InputError(
            f"Expected a kind of attention. Received: kind={kind!r}. "
            f"Choose one of: {', '.join(attention_map.weights) or 'none'}; linear attention has no "
            "weights, nor has a model without attention."
        )
    layers = attention_map.weights[kind]
    if not -len(layers) <= layer < len(layers):
        raise InputError(
            f"Expected one of the {len(layers)} layers. Received: layer={layer}. "
            "Count from 0, or from -1 backwards."
        )
    if attention_map.truncated:
        warnings.warn(
            "The text or its translation reached a limit of length and is incomplete: the picture "
            f"shows the first {len(attention_map.source_pieces)} tokens of the text and "
            f"{len(attention_map.target_pieces)} of the translation.",
            stacklevel=2,
        )
    weights = layers[layer]  # (H, T, S)
    source, target = attention_map.source_pieces, attention_map.target_pieces
    queries, keys, query_title, key_title = {
        "encoder": (source, source, "source token", "source token attended to"),
        "decoder": (target, attention_map.target_inputs, "predicted token", "token attended to"),
        "cross": (target, source, "predicted token", "source token attended to"),
    }[kind]
    if not queries or not keys:
        raise InputError(
            f"Expected tokens on both sides. Received: {len(queries)} that attend and {len(keys)} "
            "that they see: the text or its translation is empty."
        )
    num_columns = _columns_of_grid(len(weights), len(keys) / len(queries))
    num_rows = len(weights) // num_columns
    cell = min(0.22, max(0.115, 3.0 / max(len(queries), len(keys))))  # inches a weight
    label_size = min(9, 72 * cell * 0.72)
    size = (
        num_columns * (len(keys) * cell + 0.15) + label_inches(queries, label_size) + 1.0,
        num_rows * (len(queries) * cell + 0.3) + label_inches(keys, label_size) + 0.4,
    )
    with house_style():
        figure = new_figure(size, layout="compressed")
        panels = figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
        style = {"size": label_size, "family": families_for(queries + keys)}
        for head, panel in enumerate(panels.flat):
            image = panel.imshow(weights[head], cmap="Blues", vmin=0, vmax=weights.max())
            panel.set_title(f"head {head + 1}", pad=3)
            panel.spines[:].set_visible(True)
            panel.tick_params(length=0, pad=2)
            panel.set_xticks(range(len(keys)), labels(keys), rotation=90, **style)
            panel.set_yticks(range(len(queries)), labels(queries), **style)
        figure.supxlabel(key_title, size=9)
        figure.supylabel(query_title, size=9)
        colour_bar(figure, image, panels, "attention weight")
        write(figure, path)
    return figure


def _columns_of_grid(num_panels, panel_aspect):
    """Returns the divisor of `num_panels` that makes the picture a little wider than high."""

    def distance(num_columns):
        return abs(math.log(panel_aspect * num_columns**2 / num_panels / 1.5))

    return min((n for n in range(1, num_panels + 1) if num_panels % n == 0), key=distance)
