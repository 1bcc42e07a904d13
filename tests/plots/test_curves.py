import json
import re

import keras
import numpy as np
import pytest

from keras_transformer import plots
from keras_transformer.plots import curves
from keras_transformer.plots.figures import BLUE, GREEN, ORANGE, PURPLE
from keras_transformer.training.schedules import InverseSquareRoot, NoamSchedule
from keras_transformer.translation.evaluation import bleu

RECORDS = [
    {"step": 10, "loss": 5.0, "learning_rate": 1e-3},
    {"step": 20, "loss": 4.0, "learning_rate": 2e-3, "val_loss": 4.5, "val_bleu": 3.0},
    {"step": 30, "loss": float("nan"), "learning_rate": 3e-3, "val_loss": None},
    {"step": 40, "loss": 2.0, "learning_rate": 2e-3, "val_loss": 2.5, "val_bleu": 2.0},
    {"minutes": 3.0},
    {"step": 40, "weights": "mean of 3 checkpoints'", "val_loss": 1.5, "val_bleu": 9.0},
]
SOURCES = ["a dog", "a dog runs", "black dogs run here", "two dogs run on the wide beach"]
REFERENCES = [
    "ein Hund ist da",
    "ein Hund rennt hier",
    "ein schwarzer Hund rennt am Strand",
    "zwei Hunde rennen am weiten Strand",
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
    (drawn,) = curves_of(plots.learning_curves([{"step": 30, "loss": 9.0}, *again]))
    assert drawn == {BLUE: [[20, 3.5], [30, 3.0]]}


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
    loss, score, _ = figure.axes
    found = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in loss.lines}
    assert found == {
        "first training": (BLUE, "--"),
        "first validation": (BLUE, "-"),
        "second training": (ORANGE, "--"),
        "second validation": (ORANGE, "-"),
    }
    assert [line.get_xydata().tolist() for line in score.lines] == [
        [[20, 3.0], [40, 2.0]],
        [[20, 1.0]],
    ]
    assert [text.get_text() for text in score.get_legend().get_texts()] == ["first", "second"]


def test_no_run_among_several_with_anything_to_draw_is_refused():
    with pytest.raises(ValueError, match="Received: 1 records without these"):
        plots.learning_curves({"a": [], "b": [{"step": 1}]})


def test_damaged_lines_are_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    whole = json.dumps(RECORDS[0]).encode()
    damaged = b"\xff\xfe\n" + b"[" * 100_000 + b'\n{"step": ' + b"9" * 5000 + b"}\n"
    path.write_bytes(damaged + whole + b'\n{"val_bleu": "\xc3')
    assert curves_of(plots.learning_curves(path))[0] == {BLUE: [[10, 5.0]]}


@pytest.mark.parametrize(
    "step, loss",
    [
        ("x", 1.0),
        ([1], 1.0),
        (1, "x"),
        (1, {}),
        (1e308, 1.0),
        (10**400, 1.0),
        (-1, 1.0),
        (1, 1e308),
    ],
)
def test_records_that_are_no_numbers(step, loss):
    expected = f"Received: {step=}, {loss=}. Remove the record."
    with pytest.raises(ValueError, match=re.escape(expected)):
        plots.learning_curves([RECORDS[0], {"step": step, "loss": loss}])


def test_a_schedule_is_drawn_by_its_formula(tmp_path):
    path = tmp_path / "schedule.png"
    figure = plots.learning_rates(NoamSchedule(16, warmup_steps=4), 11, path)
    (line,) = figure.axes[0].lines
    steps = np.arange(1, 12)
    np.testing.assert_array_equal(line.get_xdata(), steps)
    expected = [16**-0.5 * min(step**-0.5, step * 4**-1.5) for step in steps]
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-5)
    assert figure.axes[0].get_legend() is None
    assert path.read_bytes().startswith(b"\x89PNG")


def test_several_schedules_have_labels_and_a_long_one_its_first_and_last_step(monkeypatch):
    monkeypatch.setattr(curves, "MAX_POINTS", 20)
    schedules = {
        "inverse": InverseSquareRoot(0.004, 1500),
        "cosine": keras.optimizers.schedules.CosineDecay(0.0, 30_000, warmup_target=0.001),
    }
    figure = plots.learning_rates(schedules, 20_000)
    assert [line.get_label() for line in figure.axes[0].lines] == ["inverse", "cosine"]
    assert len({line.get_color() for line in figure.axes[0].lines}) == 2
    for line in figure.axes[0].lines:
        assert line.get_xdata()[[0, -1]].tolist() == [1, 20_000]
        assert len(line.get_xdata()) <= 20


@pytest.mark.parametrize(
    ("schedules", "num_steps", "message"),
    [
        (NoamSchedule(16), 0, "at least one step. Received: num_steps=0"),
        ({}, 10, "a schedule, or a dict"),
        ({"constant": 0.001}, 10, "a schedule, or a dict"),
        ({"a": lambda step: 1e308}, 10, r"up to 1e\+38. Received: a with rates from 1e\+308"),
        (lambda step: float("nan"), 10, "Received: the schedule with rates from nan"),
    ],
)
def test_what_is_no_schedule_is_refused(schedules, num_steps, message):
    with pytest.raises(ValueError, match=message):
        plots.learning_rates(schedules, num_steps)


def test_the_bleu_of_each_group_is_that_of_its_sentences(tmp_path):
    worse = [*REFERENCES[:2], "ein schwarzer Hund rennt an dem Strand", "zwei Hunde am Strand"]
    translations = {"equal": REFERENCES, "worse": worse}
    path = tmp_path / "lengths.png"
    figure = plots.bleu_by_length(SOURCES, REFERENCES, translations, path, edges=(4, 20))
    (axis,) = figure.axes
    equal, other = axis.lines
    assert equal.get_ydata() == pytest.approx([100.0, 100.0])
    expected = bleu(worse[2:], REFERENCES[2:]).value
    assert 0 < expected < 90
    assert other.get_ydata() == pytest.approx([100.0, expected])
    names = [label.get_text() for label in axis.get_xticklabels()]
    assert names == ["0-3\n2 sentences", "4-19\n2 sentences"]
    assert other.get_label() == f"worse ({bleu(worse, REFERENCES).value:.1f})"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("sources", "translations", "edges", "message"),
    [
        (SOURCES[:3], {"a": REFERENCES}, (4,), "3 sources, 4 references"),
        (SOURCES, {"a": REFERENCES[:2]}, (4,), "2 hypotheses, 4 lines"),
        (SOURCES, {}, (4,), "a dict from labels to translations"),
        (SOURCES, REFERENCES, (4,), "a dict from labels to translations"),
        (SOURCES, {"a": REFERENCES}, (4, 4), r"rising edges, from 2 on. Received: edges=\[4, 4\]"),
    ],
)
def test_sentences_that_do_not_fit_together_are_refused(sources, translations, edges, message):
    with pytest.raises(ValueError, match=message):
        plots.bleu_by_length(sources, REFERENCES, translations, edges=edges)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_position_encoding_draws_the_papers_formula(tmp_path, layout):
    num_positions, d_model = 11, 6
    figure = plots.position_encoding(num_positions, d_model, layout, tmp_path / "positions.png")
    matrix, waves, _ = figure.axes
    drawn = np.asarray(matrix.images[0].get_array()).T
    for position in range(num_positions):
        for pair in range(d_model // 2):
            angle = position / 10000 ** (2 * pair / d_model)
            sine, cosine = (
                (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, d_model // 2 + pair)
            )
            assert drawn[position, sine] == pytest.approx(np.sin(angle), abs=1e-5)
            assert drawn[position, cosine] == pytest.approx(np.cos(angle), abs=1e-5)
    np.testing.assert_allclose(waves.lines[0].get_ydata(), drawn[:, 0])
    assert (tmp_path / "positions.png").stat().st_size > 0
