"""Trainings that change a part of the weights, and leave the others to the bit."""

import numpy as np
import pytest

from keras_transformer.runs.load import load_run
from keras_transformer.training import Interrupted, training_loop


@pytest.fixture
def interrupted_once(monkeypatch):
    """Sends a signal after step 3 of the first training."""
    sent, step_end = [], training_loop.SaveAndStop.on_train_batch_end

    def on_train_batch_end(saver, batch, logs=None):
        if saver.state.step == 2 and not sent:
            sent.append(15)
            saver.interruption.signal_number = 15
        step_end(saver, batch, logs)

    monkeypatch.setattr(training_loop.SaveAndStop, "on_train_batch_end", on_train_batch_end)


def weights_of(run, checkpoint="last"):
    """The weights by their paths without the model's name."""
    weights = load_run(run, checkpoint)[0].weights
    return {w.path.partition("/")[2]: np.array(w) for w in weights}


def test_frozen_layers_stay_as_they_were_and_have_no_optimizer_state(
    tmp_path, trained, train_quietly, untranslated, interrupted_once
):
    config, base = trained
    config = config.override(["training.freeze=source_embedding decoder", "training.ema=0.5"])
    run, whole = tmp_path / "run", tmp_path / "whole"
    with pytest.raises(Interrupted):
        train_quietly(config, run, init_from=base)
    for path in (run, whole):
        train_quietly(config, path, init_from=base)
    before, after, expected = weights_of(base, None), weights_of(run), weights_of(whole)
    same = {name for name, weight in after.items() if np.array_equal(weight, before[name])}
    assert same == {n for n in before if "source_embedding" in n or n.startswith("decoder")}
    for name, weight in expected.items():
        np.testing.assert_allclose(after[name], weight, rtol=1e-3, atol=1e-5, err_msg=name)
    with np.load(run / "checkpoints" / "step-00000005" / "state.npz") as state:
        slots = [key for key in state if key.startswith("optimizer/") and "block" in key]
    assert slots and not [key for key in slots if "decoder" in key]


@pytest.mark.parametrize(
    "names, error",
    [
        ("encoder decoder/blok_0", "decoder/block_0.*Received: decoder/blok_0. Did you mean"),
        ("encoder decoder", "Received: training.freeze=encoder decoder, which is all of it"),
    ],
)
def test_names_of_no_layers_and_of_all_are_refused(tmp_path, config, train_quietly, names, error):
    with pytest.raises(ValueError, match=error):
        train_quietly(config.override([f"training.freeze={names}"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
