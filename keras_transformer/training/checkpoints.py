"""Checkpoints: all that a training needs to go on as if nothing had happened, whole or absent.

step-00000500/model.weights.h5    weights, by Keras
step-00000500/state.json          step, position in the data, best score, minutes
step-00000500/state.npz           optimizer and random state; in the newest checkpoint alone
"""

import dataclasses
import json
import math
import os
import pathlib
import shutil
import zipfile

import numpy as np

from keras_transformer.whole_files import check_space, flush_to_disk


@dataclasses.dataclass
class TrainingState:
    """Where a training stands."""

    step: int = 0
    """Optimizer steps done."""
    epoch: int = 0
    """Epoch of the data that the next batch is from."""
    index: int = 0
    """Place of the next batch in its epoch."""
    best_bleu: float = -1.0
    """Best validation BLEU so far."""
    best_step: int = 0
    """Step of the checkpoint that reached it."""
    validations_without_better: int = 0
    """Validations since then."""
    minutes: float = 0.0
    """Minutes of training so far, validations included."""
    validated: bool = True
    """False of a checkpoint that an interruption made: it is neither kept long nor averaged."""
    in_validation: bool = False
    """Whether that interruption came in a validation, which is to be made up for."""
    num_pairs: int = 0
    """Training pairs an epoch, to notice other data under the same names."""
    num_target_tokens: int = 0
    """Real target tokens an epoch, likewise."""


class Checkpoints:
    """The checkpoints in one directory.

    A checkpoint is written under another name and then renamed, so that it is there whole or not
    at all, whenever the process is killed or the disk fills up.

    Args:
        directory: made when the first checkpoint is saved.
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def path(self, step):
        return self.directory / f"step-{step:08d}"

    def all(self):
        """Returns the checkpoints' paths, oldest first."""
        return sorted(self.directory.glob(f"step-{'[0-9]' * 8}"))

    def newest(self):
        """Returns the newest checkpoint's path, or None."""
        return self.all()[-1] if self.all() else None

    def read_state(self, path):
        """Returns the `TrainingState` of a checkpoint; `ValueError` where it is damaged."""
        try:
            return TrainingState(**json.loads((path / "state.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(_damaged(path, error)) from None

    def save(self, model, state, keep):
        """Writes a checkpoint; then deletes all but the last `keep` and the best."""
        path = self.path(state.step)
        partial = self.directory / f".partial-{path.name}"
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir(parents=True)
        try:
            check_space(partial, bytes_of(model.weights) + bytes_of(_rest(model).values()))
            model.save_weights(partial / "model.weights.h5")
            tensors = {name: np.asarray(value) for name, value in _rest(model).items()}
            np.savez(partial / "state.npz", **tensors)
            (partial / "state.json").write_text(json.dumps(dataclasses.asdict(state), indent=2))
            for file in partial.iterdir():
                flush_to_disk(file)
            if path.exists():  # the same step again: validated now, or after a later one was lost
                os.rename(path, self._aside(path))
            os.rename(partial, path)
            flush_to_disk(self.directory)
            shutil.rmtree(self._aside(path), ignore_errors=True)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        self._prune(state, keep)

    def _aside(self, path):
        return self.directory / f".before-{path.name}"

    def recover(self):
        """Puts back what a killed process had put aside to save the same step again."""
        for aside in self.directory.glob(".before-*"):
            path = self.directory / aside.name.removeprefix(".before-")
            if path.exists():
                shutil.rmtree(aside)
            else:
                os.rename(aside, path)

    def _due(self):
        """Returns the checkpoints that were validated, oldest first."""
        return [path for path in self.all() if self.read_state(path).validated]

    def restore(self, model, path):
        """Puts a checkpoint into a compiled model; returns its `TrainingState`."""
        state = self.read_state(path)
        try:
            model.load_weights(path / "model.weights.h5")
            with np.load(path / "state.npz") as tensors:
                for name, variable in _rest(model).items():
                    variable.assign(tensors[name])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(_damaged(path, error)) from None
        return state

    def average(self, model, num_checkpoints):
        """Gives the model the mean of the weights of the last checkpoints; returns how many."""
        paths = self._due()[-num_checkpoints:]
        totals = [np.zeros(weight.shape, "float64") for weight in model.weights]
        for path in paths:
            model.load_weights(path / "model.weights.h5")
            for total, weight in zip(totals, model.weights, strict=True):
                total += np.asarray(weight)
        for total, weight in zip(totals, model.weights, strict=True):
            weight.assign(total / len(paths))
        return len(paths)

    def _prune(self, state, keep):
        *older, newest = self.all()
        kept = {newest, *self._due()[-keep:], self.path(state.best_step)}
        for path in older:
            (path / "state.npz").unlink(missing_ok=True)  # two thirds of its size
            if path not in kept:
                shutil.rmtree(path)


def bytes_of(variables):
    """Returns how many bytes a file of the variables has at the most."""
    entries = sum(math.prod(variable.shape) + 1024 for variable in variables)  # 4 KB of names each
    return 4 * entries


def _damaged(path, error):
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return (
        f"Expected a whole checkpoint. Received: {path}, which is damaged ({reason}). "
        "Remove it, to go on from the one before."
    )


def _rest(model):
    """Returns what belongs to a training's state and not to the weights: name to variable."""
    weights = {id(weight) for weight in model.weights}
    random_states = [v for v in model.non_trainable_variables if id(v) not in weights]
    groups = {"optimizer": model.optimizer.variables, "random": random_states}
    return {
        f"{group}/{i}": variable
        for group, variables in groups.items()
        for i, variable in enumerate(variables)
    }
