"""Learning rates over the steps of a training."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.plots.drawing import (
    colours_of,
    curve_label,
    house_style,
    legend,
    new_figure,
    write,
)
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Schedule: TypeAlias = Callable[[Any], Any]

MOST_POINTS = 500
"""Steps that are drawn of each schedule at most."""


def learning_rates(
    schedules: Schedule | dict[str, Schedule], num_steps: int, path: StrPath | None = None
) -> "Figure":
    """Draws one or several learning-rate schedules over the steps of a training.

    Args:
        schedules: a schedule of `training` or of Keras, which is called with the number of steps
            before each, so 0 for the first one; or a dict from a label to a schedule.
        num_steps: number of steps to draw.
        path: file to write, or None.
    Raises:
        ValueError: fewer than one step, or no schedule.

    Example:
        from keras_transformer.training import NoamSchedule
        learning_rates({f"width {d}": NoamSchedule(d) for d in (256, 512)}, 20_000, "noam.png")
    """
    if num_steps < 1:
        raise InputError(f"Expected at least one step. Received: num_steps={num_steps}.")
    if not isinstance(schedules, dict):
        schedules = {"": schedules}
    if not schedules or not all(map(callable, schedules.values())):
        raise InputError(
            f"Expected a schedule, or a dict from labels to schedules. Received: {schedules}."
        )
    from keras import ops

    num_points = min(num_steps, MOST_POINTS)
    steps = np.unique(np.linspace(1, num_steps, num_points).round().astype("int32"))
    with house_style():
        figure = new_figure((5.6, 2.8), layout="constrained")
        axis = figure.subplots()
        for (label, schedule), colour in zip(schedules.items(), colours_of(schedules), strict=True):
            rates = [float(ops.convert_to_numpy(schedule(int(step) - 1))) for step in steps]
            axis.plot(steps, rates, color=colour, label=curve_label(label))
        axis.set(xlabel="step", ylabel="learning rate", title="learning rate schedule")
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color="#e6e6e6")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        if any(schedules):
            legend(axis)
        write(figure, path)
    return figure
