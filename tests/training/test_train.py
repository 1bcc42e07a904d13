"""The whole training: what a run holds, how it goes on, and what it refuses."""

import dataclasses
import errno
import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import time
import types

import keras
import numpy as np
import pytest

from keras_transformer.config import Config, TrainingConfig
from keras_transformer.runs.load import weights_path
from keras_transformer.runs.run import Run
from tests import forked

# trains with the settings of the YAML file argv[1] into argv[2], in a process of its own, without
# compiling the steps, which would take longer than all of them
TRAIN = """
import sys
from keras_transformer.config import Config
from keras_transformer.models.decoder_model import TokenModel
from keras_transformer.training import train
compile_model = TokenModel.compile
TokenModel.compile = lambda *args, **kwargs: compile_model(*args, **kwargs, run_eagerly=True)
train(Config.load(sys.argv[1]), sys.argv[2])
"""


# sends its process the signal argv[4] at the nth call of a function, and trains as TRAIN does
TRAIN_WITH_SIGNAL = (
    """
import os, sys
from keras_transformer.runs import checkpoints
from keras_transformer.training import callbacks, interruption, training_loop
owner, name, calls = {"step": (training_loop.SaveAndStop, "on_train_batch_end", 3),
    "write": (checkpoints, "put_in_place", 2), "rename": (os, "rename", 2),
    "translation": (callbacks.TranslationCallback, "translations", 2),
    "validation": (interruption.StopAtOnce, "on_test_batch_begin", 3)}[sys.argv[3]]
function = getattr(owner, name)
def call(*args, **kwargs):
    global calls
    calls -= 1
    if not calls:
        os.kill(os.getpid(), int(sys.argv[4]))
    return function(*args, **kwargs)
setattr(owner, name, call)
"""
    + TRAIN
)


def start_training(config, output, moment=None, signal_number=signal.SIGKILL):
    """Starts a training in a process, which gets a signal at a moment of TRAIN_WITH_SIGNAL."""
    settings = output.with_suffix(".yaml")
    config.save(settings)
    command = ["-c", TRAIN, settings, output]
    if moment is not None:
        number = str(int(signal_number))
        command = ["-c", TRAIN_WITH_SIGNAL, settings, output, moment, number]
    with open(os.devnull) as no_input, open(output.with_suffix(".txt"), "w") as errors:
        process = forked.start(command, (no_input, errors, errors))
    process.errors = output.with_suffix(".txt")
    return process


def end(process):
    """Waits for the end of a process; returns its exit code and what it wrote as errors."""
    process.join()
    return process.exitcode, process.errors.read_text()


def train_to_the_end(config, output):
    code, errors = end(start_training(config, output))
    assert code == 0, errors


def read_weights(path):
    import h5py

    weights = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: weights.update({name: item[()]}) if hasattr(item, "shape") else None
        )
    return weights


def last_weights(run):
    return sorted((run / "checkpoints").glob("step-*"))[-1] / "model.weights.h5"


def assert_same_weights(path, other_path):
    weights, others = read_weights(path), read_weights(other_path)
    assert weights.keys() == others.keys() and len(weights) > 20
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, others[name], err_msg=name)


def assert_same_bits(run, other):
    assert_same_weights(last_weights(run), last_weights(other))
    assert_same_weights(run / "averaged.weights.h5", other / "averaged.weights.h5")


@pytest.fixture
def finished(trained, tmp_path):
    """`(config, path)` of a copy of a run that has ended."""
    config, path = trained
    return config, shutil.copytree(path, tmp_path / "finished")


def read_finished(run):
    return json.loads((run / "finished.json").read_text())


def test_a_run_holds_what_the_next_command_needs(trained):
    from keras_transformer.runs.load import load_run

    config, run = trained
    metrics = read_finished(run)["metrics"]
    assert {"config.yaml", "tokenizer", "checkpoints", "averaged.weights.h5", "metrics.jsonl"} <= (
        set(os.listdir(run))
    )
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [2, 4, 5, 5, 5]
    assert [record.get("weights") for record in records[3:]] == [
        "best checkpoint",
        "mean of 2 checkpoints",
    ]
    assert {"loss", "learning_rate", "val_loss", "val_perplexity", "val_accuracy", "val_bleu"} <= (
        records[0].keys()
    )
    assert all(0 < record["validation_share"] < 1 for record in records[:3])
    assert all(record["gradient_norm"] > 0 for record in records[:3])
    assert records[0]["tokens_per_second"] > 0
    chosen = records[3] if read_finished(run)["checkpoint"] == "best" else records[4]
    assert 1.005 * chosen["val_bleu"] >= max(record["val_bleu"] for record in records[3:])
    assert {name: chosen[name] for name in metrics} == pytest.approx(metrics)
    # the number of shapes on this backend, which another one keeps
    assert Config.load(run / "config.yaml") == config.override(["training.static_shapes=0"])

    averaged, *_ = load_run(run, "averaged")
    last, *_ = load_run(run, "last")
    tables = [np.asarray(model.source_embedding.embeddings) for model in (averaged, last)]
    assert not np.array_equal(tables[0], tables[1])


def test_tensorboard_has_the_validations_by_their_steps_and_samples(trained):
    import tensorflow as tf

    config, run = trained
    found = {}
    for path in (run / "tensorboard").rglob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(f"{path.parent.name}/{value.tag}", {})[event.step] = value
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()][:3]
    for name, key in {
        "train/loss": "loss",
        "train/learning_rate": "learning_rate",
        "train/gradient_norm": "gradient_norm",
        "validation/loss": "val_loss",
        "validation/bleu": "val_bleu",
    }.items():
        values = {step: tf.make_ndarray(value.tensor) for step, value in found[name].items()}
        assert {step: values[step] for step in (2, 4, 5)} == pytest.approx(
            {record["step"]: record[key] for record in records}
        )
    text = tf.make_ndarray(found["validation/translations"][5].tensor).item().decode()
    first, *_ = pathlib.Path(config.data.valid[0].source).read_text().splitlines()
    assert text.startswith(f"      source       {first}\n") and text.count("translation  ") == 5


@pytest.mark.parametrize("schedule, peak, is_said", [
    ("noam", 0.001, True), ("noam", TrainingConfig.peak_learning_rate, False),
    ("linear", 0.001, False),
])  # fmt: skip
def test_a_peak_that_the_schedule_does_not_have_is_said(schedule, peak, is_said):
    from keras_transformer.training.train import report_on

    training, lines = TrainingConfig(schedule=schedule, peak_learning_rate=peak), []
    devices = types.SimpleNamespace(num_replicas=1)
    report_on(
        keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]),
        training,
        devices,
        lines.append,
    )
    assert any("no training.peak_learning_rate" in line for line in lines) == is_said


def test_the_best_weights_are_those_of_the_best_validation(
    tmp_path, config, train_quietly, untranslated, first_checks, monkeypatch
):
    from keras_transformer.runs.load import load_run
    from keras_transformer.training import callbacks

    module = importlib.import_module("keras_transformer.training.train")
    monkeypatch.setattr(module, "FIRST_CHECKS", first_checks)

    config = config.override(["training.max_steps=3", "training.checkpoint_every=1"])
    # of the steps 1, 2 and 3, of the best of them once more, and of the mean of the last two
    bleus = iter([3.0, 5.0, 4.0, 5.0, 0.0])

    def scores(self, translations):  # the first call is a look at the references
        return {"val_bleu": 0.0 if translations is self.source else next(bleus)}

    monkeypatch.setattr(callbacks.BleuCallback, "scores", scores)
    assert train_quietly(config, tmp_path / "run")["val_bleu"] == 5.0
    assert "checks      finite weights, causality, padding: held" in train_quietly.lines
    best, *_ = load_run(tmp_path / "run")
    second = tmp_path / "run/checkpoints/step-00000002/model.weights.h5"
    expected, *_ = load_run(tmp_path / "run", "last")
    assert not np.array_equal(best.get_weights()[0], expected.get_weights()[0])
    expected.load_weights(second)
    for weight, other in zip(best.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)


def test_a_finished_run_stays_as_it_is_and_more_steps_go_on(finished, train_quietly, untranslated):
    config, run = finished
    metrics = read_finished(run)["metrics"]
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert train_quietly(config, run) == pytest.approx(metrics)
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert "has ended at step 5" in train_quietly.lines[-1]

    fewer = config.override(["training.max_steps=3", "training.patience=1"])
    assert train_quietly(fewer, run) == pytest.approx(metrics)

    more = ["training.max_steps=6", "training.samples=1", "decoding.beam_size=2"]
    train_quietly(config.override(more), run)
    assert not any(line.startswith("checks") for line in train_quietly.lines)
    saved = Config.load(run / "config.yaml")  # for the next call, and for who translates
    assert saved.training.max_steps == 6
    # `tune-decoding` may have chosen the run's search, and more training does not undo that
    assert saved.decoding == config.decoding and config.decoding.beam_size != 2
    assert any("group decoding stay those of the run" in line for line in train_quietly.lines)
    assert any("going on" in line and "step 5" in line for line in train_quietly.lines)
    assert any(line.startswith("overlap  ") for line in train_quietly.lines)  # see `files`
    first, *_ = pathlib.Path(config.data.valid[0].source).read_text().splitlines()
    shown = [line for line in train_quietly.lines if line.startswith("  source  ")]
    assert shown == [f"  source       {first}"]
    (row,) = (line.split() for line in train_quietly.lines if line.startswith("      6"))
    assert row[0] == "6" and len(row) >= 7
    assert train_quietly.lines[-5:] == [
        "ended       6 steps are done",
        f"run         {run}",
        f"next        keras-transformer translate {run} --input F",
        f"            keras-transformer evaluate {run} --source F --target F",
        f"            keras-transformer export {run} DIR",
    ]
    assert (run / "checkpoints" / "step-00000006").is_dir()
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 5, 5, 5, 6, 6, 6]


@pytest.mark.slow
def test_patience_ends_a_training_that_gets_no_better(tmp_path, config, train_quietly):
    # a rate so low that translations never change
    config = config.override(
        ["training.patience=2", "training.max_steps=400", "training.peak_learning_rate=1e-12"]
    )
    run = tmp_path / "run"
    metrics = train_quietly(config, run)
    finished = read_finished(run)
    assert finished["step"] == 6 and "no better BLEU and no lower loss in 2" in finished["reason"]

    more_steps = config.override(["training.max_steps=500"])  # is not what ended it
    train_quietly(more_steps, run)
    assert "has ended at step 6" in train_quietly.lines[-1]
    assert_killed_at_its_end_it_trains_no_step_more(run, config, metrics, train_quietly)
    train_quietly(config.override(["training.patience=3"]), run)
    assert read_finished(run)["step"] == 8


def test_steps_end_a_training_once(finished, train_quietly):
    config, run = finished
    metrics = read_finished(run)["metrics"]
    assert_killed_at_its_end_it_trains_no_step_more(run, config, metrics, train_quietly)


@pytest.mark.slow
def test_minutes_end_a_training_with_a_checkpoint(tmp_path, config, train_quietly):
    config = config.override(["training.max_minutes=0.0001", "training.max_steps=400"])
    run = tmp_path / "run"
    metrics = train_quietly(config, run)
    assert (run / "checkpoints" / "step-00000001").is_dir()
    assert_killed_at_its_end_it_trains_no_step_more(run, config, metrics, train_quietly)


def assert_killed_at_its_end_it_trains_no_step_more(run, config, metrics, train_quietly):
    """The kill comes after the last checkpoint, before the weights are chosen."""
    finished = read_finished(run)
    has_mean = "num_averaged" in finished  # of one checkpoint there is none
    assert has_mean == (run / "averaged.weights.h5").exists()
    (run / "finished.json").unlink()
    (run / "averaged.weights.h5").unlink(missing_ok=True)
    assert train_quietly(config, run) == pytest.approx(metrics)
    again = read_finished(run)
    for each in (finished, again):  # of the file, in which HDF5 writes what is not of the weights
        each.pop("averaged_checksum", None)
    assert again == finished
    assert has_mean == (run / "averaged.weights.h5").exists()
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    names = [record["weights"] for record in records if "weights" in record]
    assert len(names) == len(set(names))  # logged once, though scored twice


def test_a_run_that_goes_on_does_not_offer_its_old_average(finished, train_quietly, monkeypatch):
    train_module = importlib.import_module("keras_transformer.training.train")
    config, run = finished
    monkeypatch.setattr(train_module, "fit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_quietly(config.override(["training.max_steps=20"]), run)
    assert not (run / "averaged.weights.h5").exists()


def test_fine_tuning_starts_from_another_run(tmp_path, trained, train_quietly, untranslated):
    config, first = trained
    expected = read_finished(first)["metrics"]
    settings = ["training.peak_learning_rate=1e-12", "training.max_steps=1", "model.d_model=32"]
    second = config.override(settings)
    metrics = train_quietly(second, tmp_path / "second", init_from=first)
    assert metrics["val_perplexity"] == pytest.approx(expected["val_perplexity"], rel=1e-4)
    tokenizers = [run / "tokenizer/tokenizer.model" for run in (first, tmp_path / "second")]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()


def test_fine_tuning_goes_on_without_the_other_run(tmp_path, finished, start_training):
    config, first = finished
    start_training(config, tmp_path / "second", init_from=first)
    shutil.rmtree(first)
    started = start_training(config, tmp_path / "second", init_from=first)
    assert "going on    from step 0" in started.lines


def test_fine_tuning_adds_new_tags_and_keeps_the_rows_of_the_others(
    tmp_path, finished, start_training, train_quietly
):
    from keras_transformer.runs.load import load_run

    config, first = finished
    (text,) = config.data.train
    tagged = [dataclasses.replace(text, tag=">>a<<")]
    tagged += [dataclasses.replace(text, tag=">>b<<", tag_from="</s>")]
    config = config.merged({"data": {"train": tagged}})
    second = tmp_path / "second"
    started = start_training(config, second, corpora=None, init_from=first)
    old, tokenizer, *_ = load_run(first)
    assert started.bleu.tokenizer.pieces == [*tokenizer.pieces, ">>a<<", ">>b<<"]
    grown = []
    for weight, before in zip(started.model.weights, old.weights, strict=True):
        value, rows = (keras.ops.convert_to_numpy(each) for each in (weight, before))
        np.testing.assert_array_equal(value[: len(rows)], rows)
        if value.shape != rows.shape:
            grown.append(value)
            np.testing.assert_array_equal(value[len(rows) :], [rows.mean(0), rows[3]])
    assert len(grown) == 1
    with pytest.raises(ValueError, match="adapters leave the embeddings .* >>a<<, >>b<<, lora"):
        of_adapters = config.merged({"training": {"lora_rank": 2}})
        train_quietly(of_adapters, tmp_path / "x", init_from=first)
    for name in ("source_embedding", "encoder"):
        frozen = config.merged({"training": {"freeze": name}})
        with pytest.raises(ValueError, match=f"embedding.*trained.*>>a<<, >>b<<, .*freeze={name}"):
            train_quietly(frozen, tmp_path / "x", init_from=first)
    shutil.rmtree(first)
    again = start_training(config, second, corpora=None)  # with the vocabulary of its own
    for weight, before in zip(again.model.weights, started.model.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (weight, before)))
    unknown = [dataclasses.replace(text, tag=">>c<<", tag_from="zzz")]
    with pytest.raises(ValueError, match="a token of the run .* Received: zzz for the tag >>c<<"):
        train_quietly(config.merged({"data": {"train": unknown}}), tmp_path / "x", init_from=second)
    assert not (tmp_path / "x").exists()


def test_a_run_does_not_go_on_as_if_it_began_from_any_other(tmp_path, trained, train_quietly):
    config, run = trained
    other = Run(tmp_path / "other")
    other.create(config.override(["model.d_model=8"]), *Run(run).load_tokenizers(config))
    shutil.copytree(run / "checkpoints", other.path / "checkpoints")
    with pytest.raises(ValueError, match="Expected the settings of the run.*d_model"):
        train_quietly(config, run, init_from=other.path)


def test_a_run_that_goes_on_says_that_another_does_not_begin_it(finished, trained, start_training):
    config, run = finished
    more = config.override(["training.max_steps=7"])
    started = start_training(more, run, corpora=None, init_from=trained[1])
    said = "going on    from step 5, with its own weights and not those of init_from"
    assert said in started.lines


@pytest.mark.parametrize("checkpoint", ["averaged", "last"])
def test_fine_tuning_starts_with_a_new_optimizer(tmp_path, finished, start_training, checkpoint):
    """Steps count from 0, so that the learning rate warms up, and Adam has no moments yet."""
    config, first = finished
    if checkpoint == "last":
        (first / "averaged.weights.h5").unlink()
        (first / "finished.json").unlink()
    optimizer = start_training(config, tmp_path / "second", init_from=first).model.optimizer
    assert int(optimizer.iterations) == 0
    of_adam = [variable for variable in optimizer.variables if "learning_rate" not in variable.path]
    assert all(np.all(keras.ops.convert_to_numpy(variable) == 0) for variable in of_adam)


def test_fine_tuning_from_a_run_without_weights_writes_nothing(tmp_path, finished, train_quietly):
    config, first = finished
    shutil.rmtree(first / "checkpoints")
    (first / "averaged.weights.h5").unlink()
    (first / "finished.json").unlink()
    with pytest.raises(ValueError, match="a run with a checkpoint"):
        train_quietly(config, tmp_path / "second", init_from=first)
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
def test_fine_tuning_that_was_killed_at_once_still_starts_from_the_other_run(
    tmp_path, trained, train_quietly, monkeypatch
):
    train_module = importlib.import_module("keras_transformer.training.train")
    config, first = trained
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "fit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train_quietly(config, tmp_path / "second", init_from=first)
    assert_same_weights(last_weights(tmp_path / "second"), weights_path(Run(first)))
    train_quietly(config, tmp_path / "second")
    assert "going on    from step 0" in train_quietly.lines
    assert (tmp_path / "second" / "averaged.weights.h5").exists()


@pytest.mark.slow
def test_part_of_the_pairs_is_held_out_without_validation_files(tmp_path, config, train_quietly):
    settings = ["data.valid=[]", "data.validation_share=0.1"]
    train_quietly(config.override(settings), tmp_path / "run")
    assert any(re.match("held out +3 of", line) for line in train_quietly.lines)


@pytest.mark.slow
def test_separate_vocabularies(tmp_path, config, train_quietly):
    from keras_transformer.runs.load import load_run

    settings = ["tokenizer.shared=false", "tokenizer.vocab_size=80"]
    train_quietly(config.override(settings), tmp_path / "run")
    model, source_tokenizer, target_tokenizer, _ = load_run(tmp_path / "run")
    assert source_tokenizer.pieces != target_tokenizer.pieces
    assert (model.source_vocab_size, model.target_vocab_size) == (80, 80)


@pytest.fixture(scope="module")
def deterministic(trained):
    """Settings with two corpora in one order."""
    config, _ = trained
    data = {
        split: [
            dataclasses.replace(corpus, tag=">>a<<", weight=weight),
            dataclasses.replace(corpus, tag=">>b<<"),
        ]
        for split, (corpus,), weight in (
            ("train", config.data.train, 0.7),
            ("valid", config.data.valid, 1.0),
        )
    }
    config = config.merged({"data": data})
    return config.override(["training.deterministic=true", "training.schedule=linear"])


@pytest.fixture(scope="module")
def uninterrupted(deterministic, tmp_path_factory):
    """The path of a deterministic run that nobody interrupted."""
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    train_to_the_end(deterministic, run)
    return run


def test_killed_and_started_again_ends_where_the_uninterrupted_ends_to_the_bit(
    tmp_path, deterministic, uninterrupted
):
    killed = start_training(deterministic, tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00000002"
    while not checkpoint.is_dir() and killed.exitcode is None:
        time.sleep(0.01)
    killed.kill()
    assert end(killed)[0] == -signal.SIGKILL
    assert not (tmp_path / "run" / "averaged.weights.h5").exists()

    train_to_the_end(deterministic, tmp_path / "run")
    assert_same_bits(uninterrupted, tmp_path / "run")
    logs = [(run / "metrics.jsonl").read_text() for run in (uninterrupted, tmp_path / "run")]
    names = "val_bleu", "val_bleu/>>a<<", "val_bleu/>>b<<"
    bleus = [
        [[json.loads(line)[name] for name in names] for line in log.splitlines()] for log in logs
    ]
    assert bleus[0] == bleus[1] and len(bleus[0]) == 5


@pytest.mark.slow
def test_terminated_saves_at_once_and_goes_on_to_the_bit(tmp_path, deterministic, uninterrupted):
    run = tmp_path / "run"
    code, errors = end(start_training(deterministic, run, "step", signal.SIGTERM))
    assert code and "Interrupted" in errors
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    assert json.loads((newest / "state.json").read_text())["step"] == 3

    # the rest of the epoch, to step 4, is followed by a whole one
    train_to_the_end(deterministic, run)
    assert_same_bits(uninterrupted, run)


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bits(tmp_path, deterministic, uninterrupted):
    for moment in ("step", "write", "rename", "translation", "validation"):
        run = tmp_path / moment
        code, errors = end(start_training(deterministic, run, moment))
        assert code == -signal.SIGKILL, errors
        assert (run / "checkpoints" / "step-00000002").exists()
        assert not (run / "averaged.weights.h5").exists()
        train_to_the_end(deterministic, run)
        assert_same_bits(uninterrupted, run)


@pytest.mark.slow
def test_killed_in_an_epoch_of_shards_it_ends_with_the_same_bits(tmp_path, deterministic):
    from keras_transformer.training import prepare

    prepare(deterministic, tmp_path / "text", 1, shard_pairs=9, write=lambda line: None)
    config = deterministic.merged({"data": {"prepared": str(tmp_path / "text")}})
    whole, run = tmp_path / "whole", tmp_path / "run"
    train_to_the_end(config, whole)
    code, errors = end(start_training(config, run, "step"))
    assert code == -signal.SIGKILL, errors
    state = json.loads((last_weights(run).parent / "state.json").read_text())
    assert (state["epoch"], state["index"]) == (0, 2)
    train_to_the_end(config, run)
    assert_same_bits(whole, run)


@pytest.mark.parametrize(
    "step",
    [pytest.param(2, id="between"), pytest.param(5, id="at the end")],
)
@pytest.mark.slow
def test_terminated_in_a_validation_saves_and_makes_up_for_it(
    tmp_path, config, train_quietly, monkeypatch, step
):
    from keras_transformer.training import BleuCallback, Interrupted

    config = config.override(["model.dropout=0"])
    whole = train_quietly(config, tmp_path / "whole")
    translations, calls = BleuCallback.translations, []

    def terminated(callback):
        calls.append(None)
        if len(calls) == (1 if step == 2 else 3):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)  # which the signal ends
            except Interrupted:
                raise ValueError("as Keras does with what a layer raises") from None
        return translations(callback)

    with monkeypatch.context() as patch:
        patch.setattr(BleuCallback, "translations", terminated)
        with pytest.raises(Interrupted):
            train_quietly(config, tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[-1]
    assert int(newest.name[5:]) == step
    assert train_quietly(config, tmp_path / "run") == pytest.approx(whole, rel=1e-4)
    steps = [
        [json.loads(line)["step"] for line in (tmp_path / run / "metrics.jsonl").open()]
        for run in ("whole", "run")
    ]
    assert steps[0] == steps[1] == [2, 4, 5, 5, 5]


def test_one_process_at_a_time(tmp_path, config, train_quietly):
    with Run(tmp_path / "run").locked(), pytest.raises(ValueError, match="another process"):
        train_quietly(config, tmp_path / "run")


def test_a_file_system_without_locks_is_named_as_the_reason(
    tmp_path, config, train_quietly, monkeypatch
):
    import fcntl

    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ValueError, match="file system that locks files.*No locks available"):
        train_quietly(config, tmp_path / "run")


@pytest.mark.parametrize(
    "settings, message",
    [
        (["model.num_heads=3"], "d_model must be divisible by num_heads"),
        (["tokenizer.vocab_size=50000"], "Vocabulary too large for the corpus"),
        (["data.train=[{tsv: missing.tsv}]"], "missing.tsv"),
        (["data.max_length=1"], "pairs of 1 to 1 tokens per side"),
        (["model.activation=relo"], "Keras's activations.*activation='relo'"),
    ],
)
def test_bad_input_writes_nothing(tmp_path, config, train_quietly, settings, message):
    with pytest.raises(ValueError, match=message):
        train_quietly(config.override(settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_model_is_refused_and_left_alone(finished, train_quietly):
    config, run = finished
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"model.num_layers=1. Received: model.num_layers=2"):
        train_quietly(config.override(["model.num_layers=2"]), run)
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize("file", ["thesis.txt", "tokenizer/tokenizer.model"])
def test_a_directory_of_other_files_is_refused(tmp_path, config, train_quietly, file):
    path = tmp_path / "work" / file
    path.parent.mkdir(parents=True)
    path.write_text("years of work")
    with pytest.raises(ValueError, match="holds other files"):
        train_quietly(config, tmp_path / "work")
    assert path.read_text() == "years of work"


def test_the_export_that_is_told_last_needs_no_library_that_is_missing(monkeypatch):
    train = importlib.import_module("keras_transformer.training.train")
    lines = []
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    train.report_end(types.SimpleNamespace(path="r"), "", lines.append)
    assert lines[-1].endswith("keras-transformer export r DIR --format ctranslate2")
