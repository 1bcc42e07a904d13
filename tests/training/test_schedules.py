"""Learning-rate schedules against the paper's formula; Keras's step 0 is the paper's step 1."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.training.schedules import (
    CosineDecay,
    InverseSquareRoot,
    LinearDecay,
    NoamSchedule,
)

SCHEDULES = [
    NoamSchedule(512, 4000),
    InverseSquareRoot(0.005, 2000),
    LinearDecay(0.005, 7000, 2000),
    CosineDecay(0.005, 7000, 2000),
]
DECAYS = [LinearDecay, CosineDecay]


def rate(schedule, step):
    return float(ops.convert_to_numpy(schedule(step)))


@pytest.mark.parametrize("step", [1, 2, 137, 3999, 4000, 4001, 100_000])
def test_paper_schedule_equals_the_formula(step):
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert rate(NoamSchedule(512), step - 1) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("step", [1, 2, 137, 1999, 2000, 2001, 100_000])
def test_inverse_square_root_equals_its_formula(step):
    expected = 0.005 * min(step / 2000, (2000 / step) ** 0.5)
    assert rate(InverseSquareRoot(0.005, 2000), step - 1) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("step", [1, 2, 137, 1999, 2000, 2001, 6789, 9999, 10_000])
def test_decays_equal_their_formulas(step):
    progress = max(0, step - 2000) / 8000
    rise = 0.005 * min(step, 2000) / 2000
    linear, cosine = (kind(0.005, 10_000, 2000) for kind in DECAYS)
    assert rate(linear, step - 1) == pytest.approx(rise * (1 - progress), rel=1e-5, abs=1e-9)
    expected = rise * (1 + np.cos(np.pi * progress)) / 2
    assert rate(cosine, step - 1) == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("kind", DECAYS)
def test_a_decay_is_zero_at_its_end_and_after_it(kind):
    schedule = kind(0.005, 1000, 100)
    assert rate(schedule, 998) > 0
    assert [rate(schedule, step) for step in (999, 1000, 5000)] == pytest.approx([0] * 3, abs=1e-9)
    assert rate(kind(0.005, 1), 0) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("kind", DECAYS)
def test_a_warm_up_longer_than_half_of_the_steps_ends_there(kind):
    schedule = kind(0.008, 100, 400)
    rates = ops.convert_to_numpy(schedule(ops.arange(100)))
    np.testing.assert_allclose(rates[:50], 0.008 * np.arange(1, 51) / 400, rtol=1e-5)
    assert np.all(np.diff(rates[49:]) < 0) and rates[-1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("kind", DECAYS)
def test_the_end_of_a_decay_may_be_a_variable(kind):
    schedule = kind(0.008, 100, 10)
    schedule.num_steps = keras.Variable(100.0)
    before = rate(schedule, 54)
    schedule.num_steps.assign(1000.0)
    assert rate(schedule, 54) == rate(kind(0.008, 1000, 10), 54) > 1.5 * before
    assert schedule.get_config()["num_steps"] == 1000


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rises_to_the_end_of_the_warm_up_and_falls_after(schedule):
    rates = ops.convert_to_numpy(schedule(ops.arange(3 * schedule.warmup_steps)))
    assert np.argmax(rates) == schedule.warmup_steps - 1
    before, after = np.split(rates, [schedule.warmup_steps])
    assert np.all(np.diff(before) > 0) and np.all(np.diff(after) < 0) and rates[0] > 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_serialization(schedule):
    serialize, deserialize = (
        keras.optimizers.schedules.serialize,
        keras.optimizers.schedules.deserialize,
    )
    copy = deserialize(serialize(schedule))
    assert type(copy) is type(schedule) and copy.get_config() == schedule.get_config()

    optimizer = keras.optimizers.Adam(schedule)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert float(copy.learning_rate) == pytest.approx(rate(schedule, 0), rel=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_in_a_saved_compiled_model(schedule, tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(schedule), "mse")
    for _ in range(5):
        model.train_on_batch(np.ones((2, 3)), np.ones((2, 1)))
    assert float(model.optimizer.learning_rate) == pytest.approx(rate(schedule, 5), rel=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 5
    assert float(loaded.optimizer.learning_rate) == pytest.approx(rate(schedule, 5), rel=1e-6)


def test_the_first_update_has_the_first_rate():
    schedule = InverseSquareRoot(0.5, 4)  # 0.125, 0.25, ...
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((1, 1))])
    model.compile(keras.optimizers.SGD(schedule), lambda y, p: -p)  # slope -1
    expected = 0.0
    for step_rate in (0.125, 0.25, 0.375, 0.5, 0.5 * (4 / 5) ** 0.5):
        model.train_on_batch(np.ones((1, 1)), np.ones((1, 1)))
        expected += step_rate
        assert float(model.get_weights()[0][0, 0]) == pytest.approx(expected, rel=1e-5)


def test_what_is_not_above_zero_is_refused():
    with pytest.raises(ValueError, match="Received: d_model=0"):
        NoamSchedule(0)
    with pytest.raises(ValueError, match="Received: warmup_steps=0"):
        NoamSchedule(512, 0)
    with pytest.raises(ValueError, match="Received: peak_learning_rate=-1"):
        InverseSquareRoot(-1)
    with pytest.raises(ValueError, match="Received: warmup_steps=-3"):
        InverseSquareRoot(0.1, -3)
    for kind in DECAYS:
        with pytest.raises(ValueError, match="Received: num_steps=0"):
            kind(0.1, 0)
