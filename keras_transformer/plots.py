"""Pictures for papers and notebooks: attention maps, also over images, positions, learning curves.

Each function returns the matplotlib `Figure`, which a notebook shows by itself, and writes it to
`path` where one is given: PNG, PDF or SVG by its suffix, and whole or not at all.

Shapes: T target/query length, S source/key length, H heads, D d_model.
"""

import contextlib
import json
import math
import pathlib
import warnings

import numpy as np

from keras_transformer.atomic_files import replacing
from keras_transformer.errors import InputError
from keras_transformer.fonts import families_for

FORMATS = ("png", "pdf", "svg")
BLUE, ORANGE, GREEN, PURPLE = "#2f6ca8", "#d1632f", "#2f8f5b", "#6b5b95"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#808080",
    "axes.linewidth": 0.6,
    "xtick.color": "#404040",
    "ytick.color": "#404040",
    "legend.frameon": False,
    "text.parse_math": False,  # a token may contain dollar signs
    "lines.linewidth": 1.2,
    "savefig.dpi": 200,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # text stays text, which most journals ask for
}
SENTENCE_PIECE_SPACE = "\u2581"
READABLE_SPACE = "\u2423"


def check_format(path):
    """Raises `ValueError` where `path` has a suffix that is not that of a picture."""
    if _format_of(path) not in FORMATS:
        raise InputError(
            f"Expected a picture: .{', .'.join(FORMATS)}. Received: {path}. Change the suffix."
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
        num_columns * (len(keys) * cell + 0.15) + _label_inches(queries, label_size) + 1.0,
        num_rows * (len(queries) * cell + 0.3) + _label_inches(keys, label_size) + 0.4,
    )
    with _drawing():
        figure = _figure(size, layout="compressed")
        panels = figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
        style = {"size": label_size, "family": families_for(queries + keys)}
        for head, panel in enumerate(panels.flat):
            image = panel.imshow(weights[head], cmap="Blues", vmin=0, vmax=weights.max())
            panel.set_title(f"head {head + 1}", pad=3)
            panel.spines[:].set_visible(True)
            panel.tick_params(length=0, pad=2)
            panel.set_xticks(range(len(keys)), _labels(keys), rotation=90, **style)
            panel.set_yticks(range(len(queries)), _labels(queries), **style)
        figure.supxlabel(key_title, size=9)
        figure.supylabel(query_title, size=9)
        _colour_bar(figure, image, panels, "attention weight")
        _write(figure, path)
    return figure


def position_encoding(num_positions, d_model, layout="interleaved", path=None):
    """Draws the sinusoidal position encoding: the whole matrix, and some of its waves below.

    Args:
        num_positions: number of positions, counted from 0.
        d_model: D.
        layout: `"interleaved"` or `"concatenated"`, see `sinusoidal_encoding`.
        path: file to write, or None.

    Example:
        position_encoding(100, 128, "concatenated", "positions.png")
    """
    from keras import ops

    from keras_transformer.layers.sinusoidal_positions import sinusoidal_encoding

    encoding = sinusoidal_encoding(np.arange(num_positions), d_model, layout)
    encoding = ops.convert_to_numpy(encoding)  # (num_positions, D)
    dimensions = sorted({d_model * eighth // 8 for eighth in range(4)})  # the faster half
    with _drawing():
        figure = _figure((6.4, 4.8), layout="constrained")
        matrix, waves = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        image = matrix.imshow(encoding.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        matrix.set(ylabel="dimension", title=f"sinusoidal positions, {layout}, width {d_model}")
        for dimension, colour in zip(dimensions, (BLUE, ORANGE, GREEN, PURPLE), strict=False):
            waves.plot(encoding[:, dimension], color=colour, label=f"dimension {dimension}")
        waves.set(xlabel="position", ylabel="value")
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.98)}
        waves.legend(ncols=4, handlelength=1.0, columnspacing=1.0, **above)
        _colour_bar(figure, image, matrix, "value")
        _write(figure, path)
    return figure


def learning_curves(metrics, path=None):
    """Draws loss, BLEU and learning rate over the steps of a training run.

    Args:
        metrics: path of a run's `metrics.jsonl`, or a list of dicts with its keys `step`, `loss`,
            `val_loss`, `val_bleu` and `learning_rate`; missing ones are left out. A record with the
            key `weights` is not drawn: its metrics are those of averaged weights.
        path: file to write, or None.
    Raises:
        ValueError: no such file, or nothing to draw.
    """
    records = metrics if isinstance(metrics, (list, tuple)) else _read_json_lines(metrics)
    records = [each for each in records if isinstance(each, dict) and "weights" not in each]
    panels = [
        ("loss (nats per token)", [("loss", "training", BLUE), ("val_loss", "validation", ORANGE)]),
        ("validation BLEU", [("val_bleu", "", GREEN)]),
        ("learning rate", [("learning_rate", "", PURPLE)]),
    ]
    drawn = [
        (title, [(_curve(records, key), label, colour) for key, label, colour in curves])
        for title, curves in panels
    ]
    drawn = [(title, curves) for title, curves in drawn if any(len(c[0]) for c in curves)]
    if not drawn:
        raise InputError(
            "Expected records with `step` and a metric to draw. "
            f"Received: {len(records)} records without these. Train a little longer first."
        )
    with _drawing():
        figure = _figure((5.6, 0.6 + 1.6 * len(drawn)), layout="constrained")
        axes = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (title, curves) in zip(axes, drawn, strict=True):
            for curve, label, colour in curves:
                if len(curve):
                    dots = "." if len(curve) < 60 else None
                    axis.plot(*curve.T, color=colour, marker=dots, label=label)
            axis.set_ylabel(title)
            axis.grid(axis="y", color="#e6e6e6")
            if len(curves) > 1:
                axis.legend()
            if title == "validation BLEU":
                step, best = max(curves[0][0], key=lambda point: point[1])
                axis.set_title(f"best {best:.1f} at step {step:,.0f}", loc="right", color=GREEN)
        axes[-1].set_xlabel("step")
        axes[-1].xaxis.set_major_formatter("{x:,.0f}")
        figure.align_ylabels()
        _write(figure, path)
    return figure


def image_attention(images, maps, path=None):
    """Draws images, and beside each what is attended to: the rest is dark.

    The contrast of each image is stretched to the whole range from black to white.

    Args:
        images: `(B, height, width, channels)`, with one channel or three.
        maps: dict from a title to maps `(B, rows, columns)`, such as those of
            `models.class_token_attention` and `models.attention_rollout`.
        path: file to write, or None.
    Raises:
        ValueError: images of another shape, no maps, or not one for each image.

    Example:
        image_attention(np.zeros((1, 8, 8, 3)), {"last layer": np.ones((1, 2, 2))}, "image.png")
    """
    images = _checked_images(images)
    if not isinstance(maps, dict) or not maps:
        raise InputError(f"Expected a dict from titles to maps. Received: {maps=}.")
    maps = {title: np.asarray(values) for title, values in maps.items()}
    if any(x.ndim != 3 or len(x) != len(images) or 0 in x.shape for x in maps.values()):
        received = {title: values.shape for title, values in maps.items()}
        raise InputError(
            f"Expected maps of {len(images)} images, (B, rows, columns), by their titles. "
            f"Received maps of the shapes {received}."
        )
    with _drawing():
        size = 1.6 * (1 + len(maps)) + 0.2, 1.6 * len(images) + 0.3
        figure = _figure(size, layout="compressed")
        panels = figure.subplots(len(images), 1 + len(maps), squeeze=False)
        for number, (image, row) in enumerate(zip(images, panels, strict=True)):
            _draw_image(row[0], image)
            for panel, values in zip(row[1:], maps.values(), strict=True):
                _draw_image(panel, image, values[number])
        for panel, title in zip(panels[0], ("image", *maps), strict=True):
            panel.set_title(title, pad=3)
        _write(figure, path)
    return figure


def caption_attention(image, words, maps, path=None):
    """Draws an image, and for each word of its caption what the word attends to.

    Args:
        image: `(height, width, channels)`, with one channel or three.
        words: the words, T in number.
        maps: `(T, rows, columns)`, such as those of `models.ImageCaptioner.attention_maps`.
        path: file to write, or None.
    Raises:
        ValueError: an image of another shape, or not one map for each word.

    Example:
        caption_attention(np.zeros((8, 8, 3)), ["a", "dog"], np.ones((2, 4, 4)), "caption.png")
    """
    (image,) = _checked_images([image])
    maps = np.asarray(maps)
    if isinstance(words, str):
        raise InputError(f"Expected a list of words. Received: {words=}. Split it.")
    if maps.ndim != 3 or len(maps) != len(words) or 0 in maps.shape[1:]:
        raise InputError(
            f"Expected maps of {len(words)} words, (T, rows, columns). "
            f"Received: words={list(words)}, maps.shape={maps.shape}."
        )
    num_columns = min(6, 1 + len(words))
    num_rows = math.ceil((1 + len(words)) / num_columns)
    with _drawing():
        figure = _figure((1.4 * num_columns, 1.6 * num_rows), layout="compressed")
        panels = figure.subplots(num_rows, num_columns, squeeze=False).flat
        style = {"pad": 3, "family": families_for(words)}
        _draw_image(panels[0], image)
        for panel, word, values in zip(panels[1:], words, maps, strict=False):
            _draw_image(panel, image, values)
            panel.set_title(_labels([word])[0], **style)
        for panel in panels[1 + len(words) :]:
            panel.set_axis_off()
        _write(figure, path)
    return figure


def _checked_images(images):
    """Returns an array `(B, height, width, channels)` of at least one image."""
    images = np.asarray(images)
    if images.ndim != 4 or 0 in images.shape or images.shape[-1] not in (1, 3):
        raise InputError(
            "Expected images (B, height, width, channels), with one channel or three. "
            f"Received images of the shape {images.shape}."
        )
    return images


def _draw_image(panel, image, attention=None):
    """Draws an image; with `attention` `(rows, columns)`, darker where there is less of it."""
    image = np.asarray(image, "float32")
    if image.max() > image.min():
        image = (image - image.min()) / (image.max() - image.min())
    image = np.clip(image, 0, 1)
    image = np.broadcast_to(image, (*image.shape[:2], 3))
    if attention is not None:
        (height, width), (rows, columns) = image.shape[:2], attention.shape
        cells = np.ix_(np.arange(height) * rows // height, np.arange(width) * columns // width)
        light = attention[cells] / max(attention.max(), 1e-6)
        image = image * (0.15 + 0.85 * light[..., None])
    panel.imshow(image, vmin=0, vmax=1)
    panel.set_xticks([])
    panel.set_yticks([])


def _columns_of_grid(num_panels, panel_aspect):
    """Returns the divisor of `num_panels` that makes the picture a little wider than high."""

    def distance(num_columns):
        return abs(math.log(panel_aspect * num_columns**2 / num_panels / 1.5))

    return min((n for n in range(1, num_panels + 1) if num_panels % n == 0), key=distance)


def _labels(tokens):
    return [token.replace(SENTENCE_PIECE_SPACE, READABLE_SPACE) for token in tokens]


def _label_inches(tokens, size):
    """Returns the approximate length of the longest label in a font of `size` points."""
    return max(len(token) for token in tokens) * size * 0.6 / 72


def _curve(records, key):
    """Returns `(points, 2)` of step and finite value, in the order of the steps.

    A resumed run may have logged a step twice: the later record counts.
    """
    points = {
        record["step"]: record[key]
        for record in records
        if record.get("step") is not None and record.get(key) is not None
    }
    return np.array([p for p in sorted(points.items()) if math.isfinite(p[1])]).reshape(-1, 2)


def _read_json_lines(path):
    """Returns the values of a JSON-lines file, without lines that a killed run left half."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise InputError(
            f"Expected a run's metrics.jsonl or a list of records. Received: {path}: No such file."
        )
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            records.append(json.loads(line))
    return records


@contextlib.contextmanager
def _drawing():
    """Sets the style and silences matplotlib on missing letters: `families_for` names them."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _figure(size, layout):
    # not pyplot, which would keep every figure in memory and choose a window system
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout=layout)


def _colour_bar(figure, image, panels, label):
    bar = figure.colorbar(image, ax=panels, label=label, aspect=25, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)


def _write(figure, path):
    if path is None:
        return
    check_format(path)
    with replacing(path) as partial:
        figure.savefig(partial, format=_format_of(path))


def _format_of(path):
    return pathlib.Path(path).suffix.removeprefix(".").lower() or "png"
