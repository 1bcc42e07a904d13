"""The picture of sinusoidal positions."""

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.plots import figures
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def position_encoding(
    num_positions: int, d_model: int, layout: str = "interleaved", path: StrPath | None = None
) -> "Figure":
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

    from keras_transformer.layers.positions import sinusoidal_encoding

    encoding = sinusoidal_encoding(np.arange(num_positions), d_model, layout)
    encoding = ops.convert_to_numpy(encoding)  # (num_positions, D)
    dimensions = sorted({d_model * eighth // 8 for eighth in range(4)})  # the faster half
    with figures.figure_style():
        figure = figures.new_figure((6.4, 4.8), layout="constrained")
        matrix, waves = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        image = matrix.imshow(encoding.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        matrix.set(ylabel="dimension", title=f"sinusoidal positions, {layout}, width {d_model}")
        for dimension, colour in zip(dimensions, figures.COLOURS, strict=False):
            waves.plot(encoding[:, dimension], color=colour, label=f"dimension {dimension}")
        waves.set(xlabel="position", ylabel="value")
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.98)}
        waves.legend(ncols=4, handlelength=1.0, columnspacing=1.0, **above)
        figures.colour_bar(figure, image, matrix, "value")
        figures.write(figure, path)
    return figure
