import io
import types

import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.training import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("max_minutes", "time_left"),
    [
        (None, "15:00"),  # 90 steps at 10 seconds a step
        (20, "15:00"),
        (3, "01:30"),  # after a minute and a half
        (1, "00:00"),  # the last step takes longer
    ],
)
def test_the_bar_shows_the_time_to_the_limit_that_comes_first(max_minutes, time_left, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    training = TrainingConfig(max_steps=110, max_minutes=max_minutes)
    state.step = 10
    bar = progress.ProgressBar(state, training)
    bar.on_train_begin()
    now = bar.bar.start_t
    monkeypatch.setattr(bar.bar, "_time", lambda: now + 100)
    bar.bar.n, state.minutes = 20, 1.5  # ten steps in 100 seconds
    assert f"20/110 [01:40<{time_left}, " in str(bar.bar)
    bar.close()


def test_the_bar_knows_no_time_before_the_first_step(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    bar = progress.ProgressBar(types.SimpleNamespace(step=3), TrainingConfig(max_steps=9))
    bar.on_train_begin()
    assert "3/9 [00:00<?, ?step/s]" in str(bar.bar)
    bar.close()
