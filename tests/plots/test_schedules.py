import keras
import numpy as np
import pytest

from keras_transformer import plots
from keras_transformer.training.schedules import InverseSquareRoot, NoamSchedule


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


def test_several_schedules_have_labels_and_a_long_one_its_first_and_last_step():
    schedules = {
        "inverse": InverseSquareRoot(0.004, 1500),
        "cosine": keras.optimizers.schedules.CosineDecay(0.0, 30_000, warmup_target=0.001),
    }
    figure = plots.learning_rates(schedules, 20_000)
    assert [line.get_label() for line in figure.axes[0].lines] == ["inverse", "cosine"]
    assert len({line.get_color() for line in figure.axes[0].lines}) == 2
    for line in figure.axes[0].lines:
        assert line.get_xdata()[[0, -1]].tolist() == [1, 20_000]
        assert len(line.get_xdata()) <= 500


@pytest.mark.parametrize(
    ("schedules", "num_steps", "message"),
    [
        (NoamSchedule(16), 0, "at least one step. Received: num_steps=0"),
        ({}, 10, "a schedule, or a dict"),
        ({"constant": 0.001}, 10, "a schedule, or a dict"),
    ],
)
def test_what_is_no_schedule_is_refused(schedules, num_steps, message):
    with pytest.raises(ValueError, match=message):
        plots.learning_rates(schedules, num_steps)
