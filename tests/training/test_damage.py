"""A run whose files are damaged, mixed with others or lost: nothing more is lost."""

import dataclasses
import functools
import importlib
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.files.checksums import write_checksums
from keras_transformer.runs.load import load_run, weights_path
from keras_transformer.runs.run import Identity, Run
from keras_transformer.training.training_log import check_log


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a run that has ended at step 5, with checkpoints of the steps 2, 4 and 5."""
    return shutil.copytree(trained[1], tmp_path / "run")


@pytest.fixture
def config(trained):
    return trained[0]


@pytest.fixture
def longer(config):
    return config.override(["training.max_steps=7"])


@pytest.fixture
def start(start_training):
    """Starts a training with the text that its settings name, and ends before the first step."""
    return functools.partial(start_training, corpora=None)


def files_of(run):
    return {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["state.json", "SHA256SUMS"])
def test_training_goes_on_from_the_checkpoint_before_a_damaged_one(run, longer, start, file):
    flip(run / "checkpoints/step-00000005" / file)
    started = start(longer, run)
    assert re.search("damaged .*step-00000005", "\n".join(started.lines))
    assert "going on    from step 4" in started.lines
    names = {path.name for path in (run / "checkpoints").iterdir()}
    assert names >= {"step-00000004", "damaged-step-00000005"} and "step-00000005" not in names
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").open()]
    assert steps == [2, 4]


def test_without_a_whole_checkpoint_the_weights_that_are_left_start_another_run(
    run, longer, start, tmp_path
):
    for step in (4, 5):
        (run / f"checkpoints/step-{step:08d}/state.npz").write_bytes(b"junk")
    before = files_of(run)
    with pytest.raises(ValueError, match=f"optimizer's state.*--init-from {run}$"):
        start(longer, run)
    assert files_of(run) == before
    start(longer, tmp_path / "other", init_from=run)  # which is the advice


def test_another_run_starts_from_whatever_weights_are_whole(run, longer, start, tmp_path):
    (run / "finished.json").unlink()
    (run / "averaged.weights.h5").unlink()
    older = run / "checkpoints/step-00000002"
    shutil.copytree(run / "checkpoints/step-00000004", older, dirs_exist_ok=True)
    (older / "state.npz").unlink()
    for step in (2, 4, 5):
        path = run / f"checkpoints/step-{step:08d}"
        state = json.loads((path / "state.json").read_text())
        (path / "state.json").write_text(json.dumps({**state, "step": step, "best_step": 5}))
        write_checksums(path)
    for step in (4, 5):
        flip(run / f"checkpoints/step-{step:08d}/model.weights.h5")
    with pytest.raises(ValueError, match=f"--init-from {run}$"):
        start(longer, run)
    started = start(longer, tmp_path / "other", init_from=run)  # which is the advice
    assert any("step-00000002" in line for line in started.lines)


def test_weights_are_loaded_whole_or_not_at_all(run):
    flip(run / "averaged.weights.h5")
    with pytest.raises(ValueError, match="averaged.weights.h5.*Choose the best"):
        load_run(run, "averaged")
    flip(run / "checkpoints/step-00000005/model.weights.h5")
    with pytest.raises(ValueError, match="step-00000005.*Choose|Train further"):
        load_run(run, "last")
    best = json.loads((run / "checkpoints/step-00000005/state.json").read_text())["best_step"]
    if best != 5:
        load_run(run, "best")


def test_a_damaged_tokenizer_is_refused(run, longer, start):
    from keras_transformer.tokenizers import SentencePieceTokenizer

    texts = ["Some other text.", "And a second line of it, which is longer than the first one."]
    SentencePieceTokenizer.train(texts, vocab_size=40).save(run / "tokenizer")
    before = files_of(run)
    for use in (load_run, lambda path: start(longer, path)):
        with pytest.raises(ValueError, match="Expected the tokenizers .*run/tokenizer"):
            use(run)
    assert files_of(run) == before


def test_how_it_ended_is_checked_before_anything_changes(run, longer, start):
    right = json.loads((run / "finished.json").read_text())
    for content in (
        "{",
        "{}",
        "[]",
        "5",
        json.dumps({**right, "limit": 7}),
        json.dumps({**right, "limit": "seed"}),
        json.dumps({**right, "limit": "patience", "metrics": {"a": []}}),
        json.dumps({**right, "checkpoint": "first"}),
        json.dumps({**right, "checkpoint": None}),
    ):
        (run / "finished.json").write_text(content)
        before = files_of(run)
        for use in (load_run, lambda path: start(longer, path)):
            with pytest.raises(ValueError, match="finished.json, which is damaged. Remove it"):
                use(run)
        assert files_of(run) == before
    (run / "finished.json").unlink()  # which is the advice
    load_run(run)


def test_the_log_is_checked_before_anything_changes(run, longer, start):
    log = run / "metrics.jsonl"
    first, *others = log.read_text().splitlines()
    message = "metrics.jsonl, line 2: .* Remove this line"
    for line in ("5", "[]", '{"step": "4"}', "{", "null"):
        log.write_text("\n".join([first, line, *others, ""]))
        with pytest.raises(ValueError, match=message):
            check_log(log)
    before = files_of(run)
    with pytest.raises(ValueError, match=message):
        start(longer, run)
    assert files_of(run) == before


def test_a_damaged_identity_is_refused(run, longer, start):
    for content in ("", "[]", "{}", '{"run_id": 1}', '{"run_id": "a", "tokenizers": 5}'):
        (run / "identity.json").write_text(content)
        with pytest.raises(ValueError, match="identity.json, which is damaged.*or remove it"):
            start(longer, run)
    before = json.loads((run / "checkpoints/step-00000005/state.json").read_text())["run_id"]
    (run / "identity.json").unlink()  # which is the advice
    start(longer, run)
    assert Run(run).identity.run_id == before


def test_the_command_that_began_a_run_is_kept(run, longer, start, monkeypatch):
    typed = ["train", "--train", "my pairs.tsv"]
    for argv, expected in [
        (["/usr/bin/keras-transformer", *typed], "keras-transformer train --train 'my pairs.tsv'"),
        (["/x/keras_transformer/__main__.py", "train"], "python -m keras_transformer train"),
        (["/x/ipykernel_launcher.py", "-f", "secret.json"], None),
    ]:
        monkeypatch.setattr("sys.argv", argv)
        assert Identity.of((), (), None).command == expected
    identity = dataclasses.replace(Run(run).identity, command="keras-transformer train")
    Run(run).write_identity(identity)
    start(longer, run)
    assert Run(run).identity == identity


def test_checkpoints_without_settings_are_refused(run, config, start):
    (run / "config.yaml").unlink()
    before = files_of(run)
    with pytest.raises(
        ValueError, match="config.yaml. Received: checkpoints or .* without settings"
    ):
        start(config, run)
    assert files_of(run) == before


def test_a_checkpoint_of_another_run_is_refused(run, longer, start):
    checkpoint = run / "checkpoints/step-00000006"
    shutil.copytree(run / "checkpoints/step-00000005", checkpoint)
    state = json.loads((checkpoint / "state.json").read_text())
    (checkpoint / "state.json").write_text(json.dumps({**state, "run_id": "another"}))
    write_checksums(checkpoint)
    before = files_of(run)
    for use in (lambda path: load_run(path, "last"), lambda path: start(longer, path)):
        with pytest.raises(ValueError, match="step-00000006, which belongs to another run"):
            use(run)
    assert files_of(run) == before


def test_how_another_run_ended_is_not_taken_over(run, config, start):
    (run / "config.yaml").unlink()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ValueError, match="averaged weights without settings"):
        start(config, run)
    (run / "averaged.weights.h5").unlink()
    start(config, run)
    assert not (run / "finished.json").exists()


@pytest.mark.parametrize("split", ["training", "validation"])
def test_other_text_of_the_same_size_is_refused(run, longer, start, tmp_path, split):
    path = tmp_path / "other.en"
    setting = {"training": "train", "validation": "valid"}[split]
    (corpus,) = getattr(longer.data, setting)
    text = Path(corpus.source).read_text()
    # two sentences differ, in the side that the counts of target tokens do not see
    path.write_text(text.replace("cat", "cow"))
    before = files_of(run)
    with pytest.raises(ValueError, match=f"Expected the {split} text that the run began with"):
        other = dataclasses.replace(corpus, source=path)
        start(longer.merged({"data": {setting: [other]}}), run)
    assert files_of(run) == before


def test_text_of_another_size_is_refused_with_the_sizes(
    run, longer, start, tmp_path, sentence_pairs
):
    paths = []
    for side in (0, 1):
        paths.append(tmp_path / f"fewer.{side}")
        paths[side].write_text("".join(f"{pair[side]}\n" for pair in sentence_pairs[:-3]))
    fewer = [f"data.train=[{{source: {paths[0]}, target: {paths[1]}}}]"]
    with pytest.raises(ValueError, match="began with: 31 pairs.*Received: 28 pairs"):
        start(longer.override(fewer), run)


def test_the_better_weights_are_the_default(trained, tmp_path):
    config, path = trained
    run = Run(shutil.copytree(path, tmp_path / "run"))
    finished = json.loads(run.finished_path.read_text())
    expected = {"best": run.checkpoints.best() / "model.weights.h5", "averaged": run.averaged_path}
    for checkpoint, path_of_weights in expected.items():
        run.finished_path.write_text(json.dumps({**finished, "checkpoint": checkpoint}))
        assert weights_path(run) == path_of_weights


def test_what_diverges_is_never_saved_and_goes_on_from_the_last_good_checkpoint(
    config, tmp_path, start, train_quietly, untranslated
):
    from keras_transformer.training import training_loop

    config = config.override(["training.checkpoint_every=1"])
    run, step_end = tmp_path / "run", training_loop.SaveAndStop.on_train_batch_end

    def spoil(saver, batch, logs=None):
        if saver.state.step == 1:  # the weights of step 2, at which a checkpoint is due
            saver.model.weights[0].assign(np.full(saver.model.weights[0].shape, np.nan))
        step_end(saver, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop.SaveAndStop, "on_train_batch_end", spoil)
        # the validation of NaN weights has no translations to score
        message = (
            r"a weight is not finite at step 2, at a learning rate of \S+: .* from .*step-00000001"
        )
        with pytest.raises(FloatingPointError, match=message):
            train_quietly(config, run)
    assert os.listdir(run / "checkpoints") == ["step-00000001"]
    assert not (run / "finished.json").exists()
    lower = config.override(["training.peak_learning_rate=0.001", "training.clip_norm=1"])
    started = start(lower, run)  # which is the advice
    assert "going on    from step 1" in started.lines


def test_a_loss_that_is_not_finite_ends_the_training(config, tmp_path, train_quietly):
    config = config.override(["training.peak_learning_rate=1e30", "training.warmup_steps=1"])
    message = "loss is not finite at step [23],.*the training diverges. Lower .*no checkpoint"
    with pytest.raises(FloatingPointError, match=message):
        train_quietly(config, tmp_path / "run")
    assert not (tmp_path / "run" / "finished.json").exists()


def test_a_validation_loss_that_is_not_finite_ends_the_training(config, tmp_path, train_quietly):
    """The weights are finite, but so large that no number of the model is."""
    from keras_transformer.training import BleuCallback, training_loop

    config = config.override(["training.checkpoint_every=1"])
    step_end, translated = training_loop.SaveAndStop.on_train_batch_end, []

    def spoil(saver, batch, logs=None):
        if saver.state.step == 1:
            weight = saver.model.weights[0]
            weight.assign(np.full(weight.shape, 3e38))
        step_end(saver, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop.SaveAndStop, "on_train_batch_end", spoil)
        patch.setattr(
            BleuCallback, "translations", lambda self: translated.append(1) or self.references
        )
        message = r"the validation loss is not finite at step 2, .* from .*step-00000001"
        with pytest.raises(FloatingPointError, match=message):
            train_quietly(config, tmp_path / "run")
    assert len(translated) == 1  # at step 1: nothing is translated with such weights
    assert os.listdir(tmp_path / "run" / "checkpoints") == ["step-00000001"]


def test_a_damaged_checkpoint_is_left_out_of_the_mean(run, config, train_quietly, untranslated):
    (run / "finished.json").unlink()
    flip(run / "checkpoints/step-00000004/model.weights.h5")
    train_quietly(config, run)
    assert any(re.search("left out .*step-00000004", line) for line in train_quietly.lines)
    finished = json.loads((run / "finished.json").read_text())
    assert finished["checkpoint"] in ("best", "last", "averaged")
    load_run(run)


def test_another_process_that_made_the_run_meanwhile_is_noticed(
    config, tmp_path, train_quietly, monkeypatch
):
    begin_module = importlib.import_module("keras_transformer.training.start_or_resume")
    check, other = begin_module.check_start, config.override(["training.seed=2"])

    def check_then_lose(*arguments):
        result = check(*arguments)
        monkeypatch.setattr(begin_module, "check_start", check)
        (tmp_path / "run").mkdir()
        other.save(tmp_path / "run/config.yaml")  # by another process, before the lock
        return result

    monkeypatch.setattr(begin_module, "check_start", check_then_lose)
    with pytest.raises(ValueError, match="training.seed=2. Received: training.seed=1"):
        train_quietly(config, tmp_path / "run")


def test_the_text_is_read_under_the_lock(config, tmp_path, train_quietly, monkeypatch):
    task_module = importlib.import_module("keras_transformer.training.translation_task")

    def read(*_):
        with pytest.raises(ValueError, match="another process"), Run(tmp_path / "run").locked():
            pass
        raise KeyError("read")

    monkeypatch.setattr(task_module, "read_corpora", read)
    with pytest.raises(KeyError, match="read"):
        train_quietly(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_settings_of_the_search_for_a_run_that_has_ended_are_not_ignored_in_silence(
    run, config, train_quietly
):
    train_quietly(config.override(["decoding.beam_size=7"]), run)
    assert "decoding stay those of the run" in train_quietly.lines[-1]


def test_a_lock_leaves_nothing_where_no_run_was_made(tmp_path):
    for path in (tmp_path / "a/b", tmp_path / "c"):
        with Run(path).locked():
            assert path.is_dir()
    (tmp_path / "empty").mkdir()
    with Run(tmp_path / "empty").locked():
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
