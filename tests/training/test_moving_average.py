"""Averages of the weights: what is validated, what a checkpoint holds, and how it goes on."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.runs.load import any_weights_path, build_model, load_weights
from keras_transformer.runs.run import Run
from keras_transformer.training import BleuCallback, Interrupted, training_loop


def flat(variables):
    return np.concatenate([np.ravel(ops.convert_to_numpy(v)) for v in variables]).astype("float64")


@pytest.fixture
def spied(monkeypatch, untranslated):
    """The weights after each step, and those that are translated with, by their step."""
    steps, validated = {}, {}
    step_end = training_loop.SaveAndStop.on_train_batch_end

    def on_train_batch_end(saver, batch, logs=None):
        steps[saver.state.step + 1] = flat(saver.model.trainable_variables)
        if saver.state.step == 2 and 3 not in validated:
            validated[3] = None  # once
            saver.interruption.signal_number = 15
        step_end(saver, batch, logs)

    def translate(callback):
        validated[max(steps)] = flat(callback.model.trainable_variables)
        return callback.references  # a search takes longer than the steps

    monkeypatch.setattr(training_loop.SaveAndStop, "on_train_batch_end", on_train_batch_end)
    monkeypatch.setattr(BleuCallback, "translations", translate)
    return steps, validated


def averages_of(steps, decay):
    """The moving average after each step."""
    averages, average = {}, 0.0
    for step in sorted(steps):
        factor = min(decay, (step - 1) / (step + 8))
        average = factor * average + (1 - factor) * steps[step]
        averages[step] = average
    return averages


def saved_weights(run, step):
    run = Run(run)
    config = run.load_config()
    model = build_model(config, *run.load_tokenizers(config))
    load_weights(model, run.checkpoints.path(step) / "model.weights.h5")
    return flat(model.trainable_variables)


def test_averages_are_validated_saved_and_go_on(
    tmp_path, config, train_quietly, train_to_last_checkpoint, spied
):
    """The training is interrupted after step 3, and validates after the steps 2 and 4."""
    config = config.override(["training.ema=0.2", "training.max_steps=4"])
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train_quietly(config, run)
    before = saved_weights(run, 3)
    train_to_last_checkpoint(config, run)

    steps, validated = spied
    assert sorted(steps) == list(range(1, 5))
    expected = averages_of(steps, 0.2)
    np.testing.assert_allclose(before, expected[3], rtol=1e-4, atol=1e-6)
    assert np.linalg.norm(before - steps[3]) > 1e-3 * np.linalg.norm(before)
    for step in (2, 4):
        np.testing.assert_allclose(saved_weights(run, step), expected[step], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(validated[step], expected[step], rtol=1e-4, atol=1e-6)
    # the optimizer went on from the weights, not from their average
    moved = np.linalg.norm(steps[4] - steps[3])
    assert moved < np.linalg.norm(steps[4] - expected[3])
    assert moved < 1.5 * np.linalg.norm(steps[3] - steps[2])


@pytest.mark.slow
def test_interrupted_it_ends_with_the_weights_of_the_uninterrupted(
    tmp_path, config, train_quietly, spied
):
    config = config.override(["training.ema=0.2"])
    with pytest.raises(Interrupted):
        train_quietly(config, tmp_path / "run")
    train_quietly(config, tmp_path / "run")
    train_quietly(config, tmp_path / "whole")  # without an interruption: it comes once
    found, expected = (saved_weights(tmp_path / name, 5) for name in ("run", "whole"))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_fine_tuning_starts_from_the_weights_of_the_other_run(tmp_path, trained, train_quietly):
    config, other = trained
    config = config.override(["training.ema=0.9", "training.peak_learning_rate=1e-12"])
    train_quietly(config, tmp_path / "run", init_from=other)
    chosen = any_weights_path(Run(other))
    settings = Run(other).load_config()
    model = build_model(settings, *Run(other).load_tokenizers(settings))
    load_weights(model, chosen)
    expected = flat(model.trainable_variables)
    np.testing.assert_allclose(saved_weights(tmp_path / "run", 5), expected, atol=1e-6)


def test_there_are_none_before_the_first_step(start_training, config):
    """A checkpoint of step 0, from which fine-tuning starts, has only weights."""
    started = start_training(config.override(["training.ema=0.9"]))
    assert started.saver.averages in started.callbacks
    assert started.callbacks.index(started.saver) < started.callbacks.index(started.saver.averages)
    assert started.saver.state == TrainingState(
        num_pairs=started.saver.state.num_pairs,
        num_target_tokens=started.saver.state.num_target_tokens,
    )
    assert not started.saver.averages.in_place
    assert start_training(config).saver.averages is None
