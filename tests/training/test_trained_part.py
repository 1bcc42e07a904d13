"""Trainings that change a part of the weights, and leave the others to the bit."""

import shutil

import numpy as np
import pytest

from keras_transformer import cli, load
from keras_transformer.runs.load import load_run
from keras_transformer.training import Interrupted, training_loop


@pytest.fixture
def interrupted_once(monkeypatch):
    """Sends a signal after step 2 of the first training."""
    sent, step_end = [], training_loop.SaveAndStop.on_train_batch_end

    def on_train_batch_end(saver, batch, logs=None):
        if saver.state.step == 1 and not sent:
            sent.append(15)
            saver.interruption.signal_number = 15
        step_end(saver, batch, logs)

    monkeypatch.setattr(training_loop.SaveAndStop, "on_train_batch_end", on_train_batch_end)


def weights_of(run, checkpoint="last", adapter=None):
    """The weights by their paths without the model's name."""
    weights = load_run(run, checkpoint, adapter)[0].weights
    return {w.path.partition("/")[2]: np.array(w) for w in weights}


def test_frozen_layers_stay_as_they_were_and_have_no_optimizer_state(
    tmp_path, trained, train_quietly, untranslated
):
    config, base = trained
    run = tmp_path / "run"
    config = config.override(["training.freeze=source_embedding decoder", "training.max_steps=1"])
    train_quietly(config, run, init_from=base)
    before, after = weights_of(base, None), weights_of(run)
    same = {name for name, weight in after.items() if np.array_equal(weight, before[name])}
    assert same == {n for n in before if "source_embedding" in n or n.startswith("decoder")}
    with np.load(run / "checkpoints" / "step-00000001" / "state.npz") as state:
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


@pytest.fixture(scope="module")
def adapted(made_once, trained, train_quietly):
    """A run that has trained adapters of the run `trained`."""
    config, base = trained
    config = config.override(ADAPTERS)
    return made_once("adapted", lambda path: train_quietly(config, path / "run", init_from=base))


ADAPTERS = [
    *("training.lora_rank=2", "training.freeze=encoder", "training.ema=0.5"),
    *("training.max_steps=3", "training.checkpoint_every=3"),
]


def test_an_adapter_on_its_base_is_the_run_that_has_trained_it(
    tmp_path, trained, adapted, train_quietly, untranslated, interrupted_once
):
    config, base = trained
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train_quietly(config.override(ADAPTERS), run, init_from=base)
    train_quietly(config.override(ADAPTERS), run, init_from=base)
    before, whole = weights_of(base, None), weights_of(adapted / "run", None)
    merged = weights_of(base, None, adapted / "run" / "adapter.npz")
    changed = {name for name, weight in merged.items() if not np.array_equal(weight, before[name])}
    kernels = {name for name in before if name.endswith("kernel")}
    assert changed == {name for name in kernels if name.startswith("decoder")}
    for name, weight in weights_of(run, None).items():  # which was interrupted
        np.testing.assert_array_equal(merged[name], whole[name], err_msg=name)
        np.testing.assert_allclose(weight, whole[name], rtol=1e-5, atol=1e-7, err_msg=name)
    for name in ("adapter.npz", "checkpoints/step-00000003/state.npz"):
        with np.load(run / name) as one, np.load(adapted / "run" / name) as other:
            assert one.files == other.files
            for key in one:
                if one[key].dtype.kind == "f":
                    np.testing.assert_allclose(one[key], other[key], rtol=1e-4, atol=1e-6)
    # 2 factors for 16 projections, and names
    assert (run / "adapter.npz").stat().st_size < 32 * (4 * 2 * 24 + 512) + 512


def test_an_adapter_that_does_not_fit_is_refused_and_nothing_is_lost(
    tmp_path, trained, adapted, capsys, config, train_quietly
):
    _, base = trained
    adapter = adapted / "run" / "adapter.npz"
    damaged, text, output = tmp_path / "damaged.npz", tmp_path / "text", tmp_path / "output"
    damaged.write_bytes(adapter.read_bytes()[:-99])
    text.write_text("A dog runs.\n")
    output.write_text("before\n")
    for run, file, error in (
        (adapted / "run", adapter, "Expected an adapter of these weights"),
        (base, damaged, "Expected an adapter, which a training with lora_rank writes"),
        (base, text, "Expected an adapter, which a training with lora_rank writes"),
        (base, tmp_path / "none", "No such file"),
    ):
        command = ["translate", run, "--adapter", file, "--input", text, "--output", output]
        assert cli.main(list(map(str, command))) == 2
        printed = capsys.readouterr().err
        assert error in printed and str(file) in printed and printed.count("\n") == 1
        assert output.read_text() == "before\n"
    copy = shutil.copy(adapter, tmp_path)
    command = ["translate", base, "--adapter", copy, "--input", text, "--output", copy]
    assert cli.main(list(map(str, command))) == 2
    with np.load(copy) as content:
        assert "base" in content
    with pytest.raises(ValueError, match="Expected one run with an adapter"):
        load([base, base], adapter=adapter)
    with pytest.raises(ValueError, match="training.lora_rank=2 without --init-from"):
        train_quietly(config.override(ADAPTERS), tmp_path / "run")
    assert not (tmp_path / "run").exists()
