"""A checkpoint is whole or absent, and puts back all that a training needs."""

import errno
import os
import resource
import shutil
import subprocess
import types

import h5py
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
from keras_transformer.runs.model_state import read_weights, training_state
from keras_transformer.training.losses import TokenCrossEntropy


class Divided(Transformer):
    """Another class, as the model of a training on other devices has."""


def compiled_model(seed):
    keras.utils.set_random_seed(seed)
    model = Transformer(23, num_layers=1, d_model=8, ff_dim=12, num_heads=2, dropout=0.5)
    model.build()
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy(), run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def model():
    """A model for tests in which its numbers do not matter."""
    return compiled_model(seed=1)


def train_steps(model, num_steps):
    rng = np.random.default_rng(7)
    ids = rng.integers(4, 23, (num_steps, 5, 7)).astype("int32")
    for batch in ids:
        inputs = {"source_ids": batch, "target_ids": batch}
        model.train_on_batch(inputs, batch, np.full((5, 7), 1 / 35, "float32"))


def weights_of(model):
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights]


def assert_equal(weights, others):
    for weight, other in zip(weights, others, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_restored_training_goes_on_as_the_one_that_was_saved(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    model = compiled_model(seed=1)
    train_steps(model, 1)
    checkpoints.save(model, TrainingState(step=1, epoch=3, index=2, best_score=4.5), keep=2)
    train_steps(model, 1)  # with dropout: the random state is part of it

    other = compiled_model(seed=2)
    state = checkpoints.restore(other, checkpoints.newest())
    assert state == TrainingState(step=1, epoch=3, index=2, best_score=4.5)
    saved = (checkpoints.path(1) / "state.json").read_text()
    assert "Infinity" not in saved  # which strict readers of JSON refuse
    assert int(other.optimizer.iterations) == 1
    train_steps(other, 1)
    assert_equal(weights_of(model), weights_of(other))


def test_the_optimizers_variables_are_keyed_by_the_path_of_the_weight():
    """Not by a number that Keras draws: a second model in one process has the same keys."""
    options = {
        **{"normalize_first": True, "positions": "learned", "tie_output": False},
        **{"attention": "linear", "cross_attention": "performer", "target_vocab_size": 19},
    }

    def keys(model_class, dtype):
        sizes = dict(num_layers=2, num_decoder_layers=1, d_model=8, ff_dim=12, num_heads=2)
        model = model_class(23, **sizes, **options, dtype=dtype)
        model.build()
        model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy())
        model.optimizer.build(model.trainable_variables)
        found = training_state(model)
        assert len(found) >= 2 * len(model.trainable_variables) + 2
        assert not any(model.name in key for key in found)
        return found.keys()

    first, divided = keys(Transformer, None), keys(Divided, None)
    assert "optimizer/adam/encoder_block_1_self_attention_query_kernel_momentum" in first
    assert "optimizer/adam/iteration" in first
    assert first == divided
    scaled = keys(Transformer, "mixed_float16")
    assert first < scaled
    assert "optimizer/loss_scale_optimizer/dynamic_scale" in scaled


def test_the_last_and_the_best_are_kept(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20, 30, 40, 50):
        checkpoints.save(model, TrainingState(step=step, best_step=20), keep=2)
    assert [path.name[-2:] for path in checkpoints.all()] == ["20", "40", "50"]
    with_state = [path.name[-2:] for path in checkpoints.all() if (path / "state.npz").exists()]
    assert with_state == ["40", "50"]


def test_two_checkpoints_can_be_gone_on_from_however_few_are_kept(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20, 30):
        checkpoints.save(model, TrainingState(step=step, best_step=step), keep=1)
    assert [path.name[-2:] for path in checkpoints.all()] == ["20", "30"]
    assert checkpoints.restore(model, checkpoints.path(20)).step == 20


def test_average_is_the_mean_of_the_last_checkpoints(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    saved = []
    for step in (1, 2, 3, 4):
        for weight in model.weights:
            weight.assign_add(np.random.default_rng(step).normal(size=weight.shape))
        checkpoints.save(model, TrainingState(step=step, best_step=step), keep=10)
        saved.append(weights_of(model))
    checkpoints.load_mean(model, checkpoints.validated()[-3:])
    for average, *weights in zip(weights_of(model), *saved[1:], strict=True):
        np.testing.assert_allclose(average, np.mean(weights, axis=0), rtol=1e-6, atol=1e-7)


def test_a_weights_file_has_the_weights_alone(tmp_path):
    """Keras would add the state of the optimizer, and give it to the next model that reads it."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    model = compiled_model(seed=1)
    model.optimizer.iterations.assign(1)
    optimizer = model.optimizer
    checkpoints.save(model, TrainingState(step=1), keep=2)
    assert model.optimizer is optimizer
    path = checkpoints.newest() / "model.weights.h5"
    with h5py.File(path) as file:
        assert "encoder" in file and "optimizer" not in file

    model.save_weights(path)  # as Keras does, with the state of the optimizer
    other = compiled_model(seed=2)
    read_weights(other, path)
    assert_equal(weights_of(other), weights_of(model))
    assert int(other.optimizer.iterations) == 0


@pytest.mark.parametrize("failing", ["save_weights", "savez", "rename"])
def test_what_fails_while_saving_leaves_the_last_checkpoint_and_nothing_half(
    tmp_path, model, monkeypatch, failing
):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(model, TrainingState(step=1, best_step=1), keep=1)

    def no_space(*args, **kwargs):
        raise OSError(28, "No space left on device")

    owner = {"save_weights": model, "savez": np, "rename": os}[failing]
    monkeypatch.setattr(owner, failing, no_space)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(model, TrainingState(step=2, best_step=1), keep=1)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["step-00000001"]
    assert checkpoints.restore(model, checkpoints.newest()).step == 1


def test_a_full_disk_is_found_out_before_anything_is_written(tmp_path, model, monkeypatch):
    checkpoints, state = Checkpoints(tmp_path), TrainingState(step=1)
    checkpoints.save(model, state, keep=3)
    size = sum(file.stat().st_size for file in checkpoints.path(1).iterdir())
    usage = types.SimpleNamespace(free=size)  # what is asked for is a little more than it takes
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    state.step = 2
    with pytest.raises(OSError, match="No space left on device: .* bytes needed") as error:
        checkpoints.save(model, state, keep=3)
    assert error.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_limit_of_the_size_of_files_is_found_out_too(tmp_path, model, monkeypatch):
    """HDF5 would end the process with a segmentation fault."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, 1000))
    with pytest.raises(OSError, match="File too large: .* bytes needed, 1,000 free") as error:
        Checkpoints(tmp_path).save(model, TrainingState(step=1), keep=3)
    assert error.value.errno == errno.EFBIG and str(tmp_path) in error.value.filename
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_is_saved_again_is_never_gone(tmp_path, model, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(model, TrainingState(step=4), keep=1)
    rename, killed = os.rename, []

    def rename_then_die(source, target):
        if killed:
            raise KeyboardInterrupt  # between the two renamings
        killed.append(rename(source, target))

    monkeypatch.setattr(os, "rename", rename_then_die)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(model, TrainingState(step=4), keep=1)
    monkeypatch.undo()
    assert checkpoints.newest() is None
    checkpoints.recover()
    assert checkpoints.restore(model, checkpoints.newest()).step == 4
    checkpoints.save(model, TrainingState(step=4, epoch=2), keep=1)
    assert checkpoints.restore(model, checkpoints.newest()).epoch == 2
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]


def test_remains_of_a_killed_process_are_no_checkpoint(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(model, TrainingState(step=1, best_step=1), keep=1)
    (tmp_path / ".partial-step-00000002").mkdir()
    assert checkpoints.newest().name == "step-00000001"
    checkpoints.save(model, TrainingState(step=2, best_step=1), keep=1)
    assert sorted(os.listdir(tmp_path)) == ["step-00000001", "step-00000002"]


def test_numbers_that_are_not_finite_are_no_checkpoint(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(model, TrainingState(step=1), keep=1)
    for variable in (model.weights[-1], model.optimizer.variables[-1]):
        before = keras.ops.convert_to_numpy(variable)
        for number in (np.nan, np.inf):
            variable.assign(np.full(variable.shape, number))
            with pytest.raises(FloatingPointError, match="not finite"):
                checkpoints.save(model, TrainingState(step=2), keep=1)
        variable.assign(before)
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_each_damaged_file_is_found(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(model, TrainingState(step=1), keep=1)
    for name in ("model.weights.h5", "state.npz", "state.json"):
        file = checkpoints.path(1) / name
        whole = file.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for content in (flipped, whole[:middle], None):
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content)
            with pytest.raises(DamagedCheckpoint, match="step-00000001, which is damaged"):
                checkpoints.restore(model, checkpoints.path(1))
        file.write_bytes(whole)
    assert checkpoints.restore(model, checkpoints.path(1)).step == 1


def test_checksums_that_are_lost_are_damage_too(tmp_path, model):
    checkpoints = Checkpoints(tmp_path, "a run")
    checkpoints.save(model, TrainingState(step=1), keep=1)
    sums = checkpoints.path(1) / "SHA256SUMS"
    weights = [line for line in sums.read_text().splitlines(True) if "weights" in line]
    for content in ("", "".join(weights)):
        sums.write_text(content)
        with pytest.raises(DamagedCheckpoint):
            checkpoints.restore(model, checkpoints.path(1))
    sums.unlink()
    for use in (checkpoints.check, lambda path: checkpoints.restore(model, path)):
        with pytest.raises(DamagedCheckpoint, match="SHA256SUMS is missing"):
            use(checkpoints.path(1))


def test_a_flipped_bit_of_the_state_is_damage_and_no_other_run(tmp_path, model):
    checkpoints = Checkpoints(tmp_path, "a run")
    checkpoints.save(model, TrainingState(step=1), keep=1)
    state = checkpoints.path(1) / "state.json"
    state.write_text(state.read_text().replace("a run", "b run"))
    with pytest.raises(DamagedCheckpoint, match="state.json is not what"):
        checkpoints.read_state(checkpoints.path(1))


def test_damaged_checksums_of_another_checkpoint_end_no_training(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(model, TrainingState(step=step), keep=9)
    with open(checkpoints.path(1) / "SHA256SUMS", "r+b") as file:
        file.write(b"\xff\xfe")  # no UTF-8
    for step in (3, 4):
        checkpoints.save(model, TrainingState(step=step), keep=9)
    assert checkpoints.newest() == checkpoints.path(4)


def test_the_best_checkpoint_of_each_that_training_may_go_on_from_is_kept(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    for step, best in ((4, 4), (8, 4), (10, 10)):
        checkpoints.save(model, TrainingState(step=step, best_step=best), keep=1)
    assert [path.name[-2:] for path in checkpoints.all()] == ["04", "08", "10"]


@pytest.mark.parametrize(
    "content",
    [
        *("5", "[1]", "null", '{"step": "4"}', '{"steps": 4}'),
        *('{"best_score": null}', '{"best_score": "1"}', '{"training_logs": []}'),
    ],
)
def test_a_state_of_other_types_is_damaged(tmp_path, content):
    (tmp_path / "state.json").write_text("{}")
    write_checksums(tmp_path)
    assert Checkpoints(tmp_path).read_state(tmp_path) == TrainingState()
    (tmp_path / "state.json").write_text(content)
    write_checksums(tmp_path)
    with pytest.raises(DamagedCheckpoint):
        Checkpoints(tmp_path).read_state(tmp_path)


def test_a_checkpoint_of_another_run_is_neither_read_nor_deleted(tmp_path, model):
    Checkpoints(tmp_path, "one").save(model, TrainingState(step=1), keep=1)
    other = Checkpoints(tmp_path, "another")
    for use in (
        lambda: other.restore_newest(model),
        lambda: other.validated(),
        lambda: other.best(),
        lambda: other.save(model, TrainingState(step=2), keep=1),
    ):
        with pytest.raises(ValueError, match="step-00000001, which belongs to another run"):
            use()
    assert other.path(1).is_dir()


def test_checksums_are_those_of_sha256sum(tmp_path, model):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):  # of the first one, which is the best, the optimizer's state is deleted
        checkpoints.save(model, TrainingState(step=step, best_step=1), keep=1)
    for path in checkpoints.all():
        subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, check=True)
