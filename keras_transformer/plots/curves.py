"""Curves: of training runs, learning-rate schedules, BLEU by length, and sinusoidal positions."""

import contextlib
import json
import math
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.plots import figures
from keras_transformer.translation.evaluation import bleu, length_groups, part_bleu
from keras_transformer.types import StrPath, Texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Schedule: TypeAlias = Callable[[Any], Any]
Records: TypeAlias = StrPath | list[dict[str, float]]

PANELS = {
    "loss (nats per token)": {"loss": "training", "val_loss": "validation"},
    "validation BLEU": {"val_bleu": ""},
    "learning rate": {"learning_rate": ""},
}
"""From the name of a panel to the keys of the metrics that it shows, and what they are called."""
COLOURS = dict(
    zip(("loss", "val_loss", "val_bleu", "learning_rate"), figures.COLOURS, strict=False)
)
"""The colours of the metrics of one run; of several runs, each has its own."""
MAX_STEP = 10**15
MAX_VALUE = 1e38
"""Largest step and value that are drawn; matplotlib fails at numbers near the largest ones."""
MAX_POINTS = 500
"""Steps that are drawn of each schedule at most."""


def learning_curves(metrics: Records | dict[str, Records], path: StrPath | None = None) -> "Figure":
    """Draws loss, BLEU and learning rate over the steps of one or several training runs.

    Args:
        metrics: path of a run's `metrics.jsonl`, or a list of dicts with its keys `step`, `loss`,
            `val_loss`, `val_bleu` and `learning_rate`; missing ones are left out. A record with the
            key `weights` is not drawn: its metrics are those of averaged weights. Of several runs:
            a dict from a label to one of these; the loss of training is dashed then.
        path: file to write, or None.
    Raises:
        ValueError: no such file, or nothing to draw.

    Example:
        learning_curves({"tiny": [{"step": 1, "loss": 9.0}, {"step": 2, "loss": 8.5}]})
    """
    runs = metrics if isinstance(metrics, dict) else {"": metrics}
    records = {label: _records(of_run) for label, of_run in runs.items()}
    curves = {
        key: {label: _curve(of_run, key) for label, of_run in records.items()} for key in COLOURS
    }
    panels = {
        title: names
        for title, names in PANELS.items()
        if any(len(curve) for key in names for curve in curves[key].values())
    }
    if not panels:
        raise InputError(
            "Expected records with `step` and a metric to draw. "
            f"Received: {sum(map(len, records.values()))} records without these. "
            "Train a little longer first."
        )
    with figures.figure_style():
        figure = figures.new_figure((5.6, 0.9 + 1.6 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, (title, names) in zip(axes, panels.items(), strict=True):
            axis.set_ylabel(title)
            axis.grid(axis="y", color="#e6e6e6")
            for key, name in names.items():
                if isinstance(metrics, dict):
                    look = {"linestyle": "--", "linewidth": 0.8} if key == "loss" else {}
                    for run, colour in zip(records, figures.colours_of(records), strict=True):
                        label = figures.curve_label(f"{run} {name}".strip())
                        _draw(axis, curves[key][run], color=colour, label=label, **look)
                else:
                    _draw(axis, curves[key][""], color=COLOURS[key], label=name)
                    if key == "val_bleu":
                        step, best = max(curves[key][""], key=lambda point: point[1])
                        title = f"best {best:.1f} at step {step:,.0f}"
                        axis.set_title(title, loc="right", color=COLOURS[key])
            if len(axis.lines) > 1:
                figures.legend(axis)
        figure.suptitle("learning curves")
        axes[-1].set_xlabel("step")
        axes[-1].xaxis.set_major_formatter("{x:,.0f}")
        figure.align_ylabels()
        figures.write(figure, path)
    return figure


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
        ValueError: fewer than one step, no schedule, or rates that cannot be drawn.

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

    num_points = min(num_steps, MAX_POINTS)
    steps = np.unique(np.linspace(1, num_steps, num_points).round().astype("int32"))
    with figures.figure_style():
        figure = figures.new_figure((5.6, 2.8), layout="constrained")
        axis = figure.subplots()
        colours = figures.colours_of(schedules)
        for (label, schedule), colour in zip(schedules.items(), colours, strict=True):
            rates = [float(ops.convert_to_numpy(schedule(int(step) - 1))) for step in steps]
            if not all(abs(rate) <= MAX_VALUE for rate in rates):
                raise InputError(
                    f"Expected learning rates that are numbers up to {MAX_VALUE:g}. "
                    f"Received: {label or 'the schedule'} with rates from {min(rates)} to "
                    f"{max(rates)}. Correct the schedule."
                )
            axis.plot(steps, rates, color=colour, label=figures.curve_label(label))
        axis.set(xlabel="step", ylabel="learning rate", title="learning rate schedule")
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color="#e6e6e6")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        if any(schedules):
            figures.legend(axis)
        figures.write(figure, path)
    return figure


def bleu_by_length(
    sources: Texts,
    references: Texts,
    translations: dict[str, list[str]],
    path: StrPath | None = None,
    edges: Iterable[int] = (9, 12, 15, 19),
) -> "Figure":
    """Draws the BLEU of one or several translators by the number of words of the source.

    Args:
        sources, references: lists of str of the same length.
        translations: dict from the label of a translator to its translations, a list of str.
        path: file to write, or None.
        edges: number of words with which the second group begins, the third, and so on.
    Raises:
        ValueError: lists of different lengths, no sentences or translations, or edges that do not
            rise.

    Example:
        bleu_by_length(["A dog runs."], ["Ein Hund rennt."], {"mine": ["Ein Hund."]}, "lengths.png")
    """
    if not isinstance(translations, dict) or not translations:
        raise InputError(f"Expected a dict from labels to translations. Received: {translations=}.")
    if len(sources) != len(references):
        raise InputError(
            "Expected a reference for each source. Received: "
            f"{len(sources)} sources, {len(references)} references."
        )
    groups = length_groups(sources, edges)
    with figures.figure_style():
        figure = figures.new_figure((6.4, 3.6), layout="constrained")
        axis = figure.subplots()
        colours = figures.colours_of(translations)
        for (label, texts), colour in zip(translations.items(), colours, strict=True):
            whole = bleu(texts, [references], hints=False).value
            scores = [part_bleu(texts, references, rows) for rows in groups.values()]
            label = figures.curve_label(f"{label} ({whole:.1f})")
            axis.plot(range(len(groups)), scores, "o-", color=colour, label=label)
        names = [f"{name}\n{len(rows)} sentences" for name, rows in groups.items()]
        axis.set_xticks(range(len(groups)), names)
        axis.set(xlabel="words of the source", ylabel="BLEU", title="BLEU by length of the source")
        axis.grid(axis="y", color="#e6e6e6")
        figures.legend(axis, title="BLEU of all sentences in brackets")
        figures.write(figure, path)
    return figure


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


def _draw(axis, curve, **style):
    """Draws a curve `(points, 2)`; of few points, each is marked."""
    if len(curve):
        marker = "." if len(curve) < 60 and "linestyle" not in style else None
        axis.plot(*curve.T, marker=marker, **style)


def _records(metrics):
    """Returns the records of a run, from a list or a file, without those of averaged weights.

    Lines of the file that are damaged or were left half are skipped.
    """
    if not isinstance(metrics, (list, tuple)):
        path, metrics = pathlib.Path(metrics), []
        if not path.is_file():
            raise InputError(
                "Expected a run's metrics.jsonl or a list of records. "
                f"Received: {path}: No such file."
            )
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                metrics.append(json.loads(line))
    return [each for each in metrics if isinstance(each, dict) and "weights" not in each]


def _curve(records, key):
    """Returns `(points, 2)` of step and finite value, in the order of the steps.

    A resumed run may have logged a step twice: the later record counts.
    """
    points = {}
    for record in records:
        step, value = record.get("step"), record.get(key)
        if step is None or value is None:
            continue
        try:
            if not 0 <= float(step) <= MAX_STEP:
                raise ValueError
            if MAX_VALUE < abs(float(value)) < math.inf:
                raise ValueError
            points[float(step)] = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"Expected numbers up to {MAX_VALUE:g} in the records of a run, and a step from 0 "
                f"to {MAX_STEP:,}. Received: {step=}, {key}={value!r}. Remove the record."
            ) from None
    return np.array([p for p in sorted(points.items()) if math.isfinite(p[1])]).reshape(-1, 2)
