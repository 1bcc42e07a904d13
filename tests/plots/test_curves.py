import json
import re

import pytest

from keras_transformer import plots
from keras_transformer.plots.drawing import BLUE, GREEN, ORANGE, PURPLE

RECORDS = [
    {"step": 10, "loss": 5.0, "learning_rate": 1e-3},
    {"step": 20, "loss": 4.0, "learning_rate": 2e-3, "val_loss": 4.5, "val_bleu": 3.0},
    {"step": 30, "loss": float("nan"), "learning_rate": 3e-3, "val_loss": None},
    {"step": 40, "loss": 2.0, "learning_rate": 2e-3, "val_loss": 2.5, "val_bleu": 2.0},
    {"minutes": 3.0},
    {"step": 40, "weights": "mean of 3 checkpoints'", "val_loss": 1.5, "val_bleu": 9.0},
]


def write_json_lines(path, records, end=""):
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + end)
    return path


def curves_of(figure):
    return [
        {line.get_color(): line.get_xydata().tolist() for line in axes.lines}
        for axes in figure.axes
    ]


def test_learning_curves_draw_what_is_there_and_skip_what_is_not(tmp_path):
    path = write_json_lines(tmp_path / "metrics.jsonl", RECORDS, end='{"step": 50, "lo')
    figure = plots.learning_curves(path, tmp_path / "curves.png")
    assert curves_of(figure) == [
        {
            BLUE: [[10, 5.0], [20, 4.0], [40, 2.0]],
            ORANGE: [[20, 4.5], [40, 2.5]],
        },
        {GREEN: [[20, 3.0], [40, 2.0]]},
        {PURPLE: [[10, 1e-3], [20, 2e-3], [30, 3e-3], [40, 2e-3]]},
    ]
    assert figure.axes[1].get_title(loc="right") == "best 3.0 at step 20"
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_a_step_logged_again_after_a_resume_counts_once():
    again = [{"step": 20, "loss": 3.5}, {"step": 30, "loss": 3.0}]
    (curves,) = curves_of(plots.learning_curves([{"step": 30, "loss": 9.0}, *again]))
    assert curves == {BLUE: [[20, 3.5], [30, 3.0]]}


@pytest.mark.parametrize("records", [[], [{"step": 3}], [{"loss": 3.0}]])
def test_nothing_to_draw_is_refused(records):
    with pytest.raises(ValueError, match=f"Received: {len(records)} records"):
        plots.learning_curves(records)


def test_learning_curves_without_a_file_or_records_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none.jsonl: No such file"):
        plots.learning_curves(tmp_path / "none.jsonl")
    (tmp_path / "numbers.jsonl").write_text("5\n[6]\n")
    with pytest.raises(ValueError, match="Received: 0 records"):
        plots.learning_curves(tmp_path / "numbers.jsonl")


def test_each_of_several_runs_has_its_colour(tmp_path):
    other = [{"step": 10, "loss": 6.0}, {"step": 20, "loss": 5.5, "val_loss": 5.0, "val_bleu": 1.0}]
    first = write_json_lines(tmp_path / "metrics.jsonl", RECORDS)
    figure = plots.learning_curves({"first": first, "second": other}, tmp_path / "curves.png")
    loss, bleu, _ = figure.axes
    found = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in loss.lines}
    assert found == {
        "first training": (BLUE, "--"),
        "first validation": (BLUE, "-"),
        "second training": (ORANGE, "--"),
        "second validation": (ORANGE, "-"),
    }
    assert [line.get_xydata().tolist() for line in bleu.lines] == [
        [[20, 3.0], [40, 2.0]],
        [[20, 1.0]],
    ]
    assert [text.get_text() for text in bleu.get_legend().get_texts()] == ["first", "second"]


def test_no_run_among_several_with_anything_to_draw_is_refused():
    with pytest.raises(ValueError, match="Received: 1 records without these"):
        plots.learning_curves({"a": [], "b": [{"step": 1}]})


def test_damaged_lines_are_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    whole = json.dumps(RECORDS[0]).encode()
    path.write_bytes(b"\xff\xfe\n" + b"[" * 100_000 + b"\n" + whole + b'\n{"val_bleu": "\xc3')
    assert curves_of(plots.learning_curves(path))[0] == {BLUE: [[10, 5.0]]}


@pytest.mark.parametrize("step, loss", [("x", 1.0), ([1], 1.0), (1, "x"), (1, {})])
def test_records_that_are_no_numbers(step, loss):
    expected = f"Received: {step=}, {loss=}. Remove the record."
    with pytest.raises(ValueError, match=re.escape(expected)):
        plots.learning_curves([RECORDS[0], {"step": step, "loss": loss}])
