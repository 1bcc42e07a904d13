import dataclasses
import pathlib
import re

import keras
import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.training import dry_run
from keras_transformer.training.train import train

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.fixture
def few_steps(uncompiled_steps, monkeypatch):
    """Two steps that are not compiled."""
    monkeypatch.setattr(dry_run, "TIMED_STEPS", 1)
    with uncompiled_steps():
        yield


@pytest.fixture
def unchecked(monkeypatch):
    """No checks of the model, which take as long as its steps."""
    monkeypatch.setattr(dry_run, "check_lines", lambda model: [])


def everything_in(directory):
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


@pytest.mark.usefixtures("few_steps")
def test_a_dry_run_reports_on_a_training_and_writes_nothing(tmp_path, config, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, lines = everything_in(tmp_path), []
    dry_run.dry_run(config, tmp_path / "new" / "run", write=lines.append)
    assert everything_in(tmp_path) == before
    names = [line[:12].rstrip() for line in lines if line[0] != " "]
    assert names[0] == "tokenizer" and names[-4:] == ["memory", "step", "plan", "time"]
    report = "\n".join(lines)
    assert re.search(r"^model       [1-9][\d,]* parameters$", report, re.M)
    assert re.search(r"^plan        5 steps, 1\.0 epochs, 3 validations$", report, re.M)
    assert "checks      finite weights, same twice, causality, padding" in report
    assert re.search(r"^memory      (0\.[1-9]|[1-9])", report, re.M)
    assert lines[-1].strip() == "nothing was written"


@pytest.mark.usefixtures("few_steps", "unchecked")
def test_a_dry_run_of_a_run_goes_on_from_its_step_and_refuses_what_it_refuses(tmp_path, trained):
    config, run = trained
    before, lines = everything_in(run), []
    more = config.override(["training.max_steps=9"])
    dry_run.dry_run(more, run, write=lines.append)
    assert any(line.startswith("plan        4 steps") for line in lines)
    (text,) = config.data.valid
    shorter = [str(tmp_path / name) for name in ("source", "target")]
    for path, new in zip(text.paths, shorter, strict=True):  # one line less
        lines_of_side = (run.parent / path).read_text().splitlines(keepends=True)
        pathlib.Path(new).write_text("".join(lines_of_side[1:]))
    text = dataclasses.replace(text, source=shorter[0], target=shorter[1])
    other = more.merged({"data": {"valid": [text]}})
    messages = []
    for start in (dry_run.dry_run, train):
        with pytest.raises(ValueError, match="the validation text that the run began") as error:
            start(other, run, write=lambda line: None)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    after = everything_in(run)
    assert {path: after[path] for path in before if path.name != ".lock"} == {
        path: before[path] for path in before if path.name != ".lock"
    }


@pytest.mark.usefixtures("few_steps", "unchecked")
def test_a_dry_run_of_fine_tuning_has_the_tokens_that_are_new(tmp_path, trained):
    config, first = trained
    (text,) = config.data.train
    text = dataclasses.replace(text, tag=">>a<<")
    lines = []
    tagged = config.merged({"data": {"train": [text]}})
    dry_run.dry_run(tagged, tmp_path / "new", init_from=first, write=lines.append)
    assert any(">>a<< is a new token" in line for line in lines)
    assert lines[-1].strip() == "nothing was written" and not (tmp_path / "new").exists()


def test_it_says_what_is_wrong_with_a_model():
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True))(
        keras.layers.Embedding(30, 8, mask_zero=True)(ids)
    )
    model = keras.Model(ids, keras.layers.Dense(30)(x))
    (line,) = dry_run.check_lines(model)
    assert line.startswith("check       causality failed: the tokens from 1 on change")


def test_the_share_of_padding_is_that_of_the_batches(tokenizer, corpus):
    from keras_transformer.data import TranslationBatches

    batches = TranslationBatches(corpus, tokenizer, batch_tokens=200)
    positions = padding = 0
    for inputs, labels, _ in batches.arrays(repeat=False):
        for ids in (inputs["source_ids"], labels):
            positions += ids.size
            padding += (ids == 0).sum()
    assert batches.padding() == pytest.approx(padding / positions) and padding


def test_the_time_is_that_of_the_steps_that_are_left(tokenizer, corpus):
    from keras_transformer.data import TranslationBatches

    batches = TranslationBatches(corpus, tokenizer, batch_tokens=200)
    training = TrainingConfig(max_steps=7300, max_minutes=90, patience=0, checkpoint_every=1000)
    state = TrainingState(step=100, minutes=30)
    step, plan, hours = dry_run.time_lines(batches, training, state, 0.5, 4.0)
    tokens = batches.num_target_tokens / len(batches) / 0.5
    assert f"0.5 s, {tokens:,.0f} target tokens a second; the first one 4 s" in step
    assert "7,200 steps" in plan and "8 validations" in plan
    assert "1.0 hours of steps" in hours and "max_minutes leaves 1.0" in hours
    over = TrainingState(step=7400)  # it was killed, and now fewer steps are allowed
    _, plan, hours = dry_run.time_lines(batches, training, over, 0.5, 4.0)
    assert "plan        0 steps, 0.0 epochs, 0 validations" in plan and " 0.0 hours of" in hours
