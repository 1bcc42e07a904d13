import json
import math
import types

import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.training import distribution, training_log
from keras_transformer.training.progress import Table
from keras_transformer.training.training_loop import SaveAndStop

TASK = types.SimpleNamespace(
    batches=[None],
    monitor="val_bleu",
    score_name="BLEU",
    rank=lambda metrics: (metrics["val_bleu"], -metrics.get("val_loss", 0.0)),
)


def test_the_log_says_which_share_of_the_time_a_validation_takes(tmp_path, monkeypatch):
    seconds = iter([100.0, 118.0, 120.0])  # 18 of training, 2 of validation
    monkeypatch.setattr(training_log.time, "monotonic", lambda: next(seconds))
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    path, lines = tmp_path / "metrics.jsonl", []
    log = training_log.Log(path, state, TASK, Table(TASK, lines.append))
    log.on_epoch_begin(0)
    log.on_test_begin()
    log.on_epoch_end(0, {"loss": 2.0, "val_bleu": 5.0})
    assert json.loads(path.read_text())["validation_share"] == 0.1
    assert len(lines) == 1


def test_a_validation_that_is_done_again_has_no_share(tmp_path):
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    log = training_log.Log(tmp_path / "metrics.jsonl", state, TASK, Table(TASK, lambda line: None))
    log.on_test_begin()
    log.on_epoch_end(0, {"loss": 2.0, "val_bleu": 5.0})
    assert "validation_share" not in json.loads(log.path.read_text())


def test_a_new_best_is_marked(tmp_path):
    state = TrainingState(best_score=5.0, best_loss=2.0)
    lines = []
    log = training_log.Log(tmp_path / "metrics.jsonl", state, TASK, Table(TASK, lines.append))
    for bleu, loss in ((5.0, 2.0), (5.0, 1.9), (4.9, 1.0), (5.1, 3.0)):
        log.on_epoch_end(0, {"val_bleu": bleu, "val_loss": loss})
    assert [line.endswith("  best") for line in lines] == [False, True, False, True]


@pytest.mark.parametrize(("bad_step", "noticed_after"), [(1, 2), (2, 3), (3, 3)])
def test_a_loss_that_is_not_finite_is_that_of_its_step(bad_step, noticed_after):
    state = TrainingState(num_pairs=1, num_target_tokens=1)
    training = TrainingConfig(max_steps=9, checkpoint_every=3)
    devices = distribution.Distribution()
    interruption = types.SimpleNamespace(signal_number=None)
    checkpoints = types.SimpleNamespace(newest=lambda: None)
    saver = SaveAndStop(checkpoints, state, None, training, interruption, devices)
    optimizer = types.SimpleNamespace(learning_rate=0.1)
    saver.set_model(types.SimpleNamespace(weights=[], optimizer=optimizer))
    steps = 0
    with pytest.raises(FloatingPointError, match=f"the loss is not finite at step {bad_step}"):
        for step in range(1, 4):
            steps += 1
            saver.on_train_batch_end(step - 1, {"loss": math.nan if step >= bad_step else 1.0})
    assert steps == noticed_after
