"""Checkpoints of earlier versions of this package still load."""

import keras
import numpy as np
import pytest

from keras_transformer.files.checksums import write_checksums
from keras_transformer.models import Transformer
from keras_transformer.runs.checkpoints import (
    Checkpoints,
    DamagedCheckpoint,
    TrainingState,
)
from keras_transformer.training.losses import TokenCrossEntropy

# as the version of commit e13402e has written it
STATE = """{
  "step": 30,
  "epoch": 15,
  "index": 0,
  "best_bleu": 10.511205190671433,
  "best_step": 30,
  "validations_without_better": 0,
  "minutes": 0.7870383600166557,
  "validated": true,
  "in_validation": false,
  "training_logs": {},
  "num_pairs": 14,
  "num_target_tokens": 70,
  "run_id": "e2ec2e6bf5e1422185def38fda66a948"
}"""


def compiled_model(seed, dtype=None):
    keras.utils.set_random_seed(seed)
    sizes = dict(num_layers=1, d_model=8, ff_dim=12, num_heads=2)
    model = Transformer(23, **sizes, normalize_first=True, dropout=0.5, dtype=dtype)
    model.build()
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy())
    model.optimizer.build(model.trainable_variables)
    return model


def test_the_best_bleu_of_an_old_state_is_its_best_score(tmp_path):
    (tmp_path / "state.json").write_text(STATE)
    checkpoints = Checkpoints(tmp_path, "e2ec2e6bf5e1422185def38fda66a948")
    assert checkpoints.read_state(tmp_path) == TrainingState(
        step=30,
        epoch=15,
        best_score=10.511205190671433,
        best_step=30,
        minutes=0.7870383600166557,
        num_pairs=14,
        num_target_tokens=70,
        run_id="e2ec2e6bf5e1422185def38fda66a948",
    )


def test_a_damaged_old_optimizer_is_damage(tmp_path):
    checkpoints, model = Checkpoints(tmp_path), compiled_model(1)
    checkpoints.save(model, TrainingState(step=2), keep=1)
    np.savez(checkpoints.path(2) / "state.npz", **{"optimizer/0": np.array(1)})
    write_checksums(checkpoints.path(2))
    with pytest.raises(DamagedCheckpoint):
        checkpoints.restore(model, checkpoints.path(2))
