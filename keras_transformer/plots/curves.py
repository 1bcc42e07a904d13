"""Learning curves of training runs."""

import contextlib
import json
import math
import pathlib

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.plots.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    house_style,
    new_figure,
    write,
)


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
    with house_style():
        figure = new_figure((5.6, 0.6 + 1.6 * len(drawn)), layout="constrained")
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
        write(figure, path)
    return figure


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
