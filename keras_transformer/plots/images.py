"""What is attended to in images.

Shapes: B batch (images), T target length (words).
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.plots import figures
from keras_transformer.types import StrPath, Tensor, Texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def image_attention(
    images: Tensor, maps: dict[str, Tensor], path: StrPath | None = None
) -> "Figure":
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
    with figures.figure_style():
        size = 1.6 * (1 + len(maps)) + 0.2, 1.6 * len(images) + 0.3
        figure = figures.new_figure(size, layout="compressed")
        panels = figure.subplots(len(images), 1 + len(maps), squeeze=False)
        for number, (image, row) in enumerate(zip(images, panels, strict=True)):
            _draw_image(row[0], image)
            for panel, values in zip(row[1:], maps.values(), strict=True):
                _draw_image(panel, image, values[number])
        for panel, title in zip(panels[0], ("image", *maps), strict=True):
            panel.set_title(title, pad=3)
        figures.write(figure, path)
    return figure


def caption_attention(
    image: Tensor, words: Texts, maps: Tensor, path: StrPath | None = None
) -> "Figure":
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
    with figures.figure_style():
        figure = figures.new_figure((1.4 * num_columns, 1.6 * num_rows), layout="compressed")
        panels = figure.subplots(num_rows, num_columns, squeeze=False).flat
        style = {"pad": 3, "family": figures.families_for(words)}
        _draw_image(panels[0], image)
        for panel, word, values in zip(panels[1:], words, maps, strict=False):
            _draw_image(panel, image, values)
            panel.set_title(figures.labels([word])[0], **style)
        for panel in panels[1 + len(words) :]:
            panel.set_axis_off()
        figures.write(figure, path)
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
