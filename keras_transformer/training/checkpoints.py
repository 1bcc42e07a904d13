"""Checkpoints: all that a training needs to go on as if nothing had happened, whole or absent.

step-00000500/model.weights.h5    weights, by Keras
step-00000500/state.json          step, position in the data, best score, minutes
step-00000500/state.npz           optimizer and random state; in the newest checkpoints alone
step-00000500/SHA256SUMS          checksums of these files
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
import zipfile

import numpy as np

from keras_transformer.checksums import check_checksums, remove_with_checksum, write_checksums
from keras_transformer.whole_files import check_space, flush_to_disk

WEIGHTS = "model.weights.h5"
NUM_FULL = 2
"""Newest checkpoints that keep the optimizer's state: if one is damaged, there is another."""


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
    training_logs: dict = dataclasses.field(default_factory=dict)
    """Training loss and metrics of the epoch whose validation was interrupted."""
    num_pairs: int = 0
    """Training pairs an epoch, to notice other data under the same names."""
    num_target_tokens: int = 0
    """Real target tokens an epoch, likewise."""
    run_id: str = ""
    """Which run the checkpoint belongs to; "" in checkpoints of earlier versions."""


class DamagedCheckpoint(ValueError):
    """A checkpoint whose files are missing or damaged."""

    def __init__(self, path, error):
        self.path = path
        self.reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        super().__init__(
            f"Expected a whole checkpoint. Received: {path}, which is damaged ({self.reason})."
        )


class Checkpoints:
    """The checkpoints in one directory.

    A checkpoint is written under another name and then renamed, so that it is there whole or not
    at all, whenever the process is killed or the disk fills up.

    Args:
        directory: made when the first checkpoint is saved.
        run_id: str; a checkpoint of another run is refused.
    """

    def __init__(self, directory, run_id=""):
        self.directory = pathlib.Path(directory)
        self.run_id = run_id

    def path(self, step):
        return self.directory / f"step-{step:08d}"

    def all(self):
        """Returns the checkpoints' paths, oldest first."""
        return sorted(self.directory.glob(f"step-{'[0-9]' * 8}"))

    def newest(self):
        """Returns the newest checkpoint's path, or None."""
        return self.all()[-1] if self.all() else None

    def stored_run_id(self):
        """Returns the id of the run that the newest readable checkpoint belongs to, or ""."""
        for path in reversed(self.all()):
            with contextlib.suppress(DamagedCheckpoint):
                return _read_state(path).run_id
        return ""

    def read_state(self, path):
        """Returns the `TrainingState` of a checkpoint.

        Raises:
            DamagedCheckpoint: it cannot be read.
            ValueError: it belongs to another run.
        """
        state = _read_state(path)
        if state.run_id != self.run_id:
            raise ValueError(
                f"Expected checkpoints of one run. Received: {path}, which belongs to another run "
                f"than {self.directory.parent}. Move it to another directory."
            )
        return state

    def check(self, path):
        """Raises `DamagedCheckpoint` where the weights or the state are not as they were saved."""
        state = self.read_state(path)
        try:
            check_checksums(path, [WEIGHTS, "state.json"], is_required=state.run_id != "")
        except ValueError as error:
            raise DamagedCheckpoint(path, error) from None

    def save(self, model, state, keep):
        """Writes a checkpoint; then deletes all but the last `keep` and the best.

        Raises:
            FloatingPointError: a weight or the optimizer's state is not finite. Nothing is
                written: no training could go on from there.
        """
        state.run_id = self.run_id
        rest = {name: np.asarray(value) for name, value in _rest(model).items()}
        if not all_finite([*model.weights, *rest.values()]):
            raise FloatingPointError("the weights or the optimizer's state are not finite")
        path = self.path(state.step)
        partial = self.directory / f".partial-{path.name}"
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir(parents=True)
        try:
            check_space(partial, bytes_of(model.weights) + bytes_of(rest.values()))
            model.save_weights(partial / WEIGHTS)
            np.savez(partial / "state.npz", **rest)
            (partial / "state.json").write_text(json.dumps(dataclasses.asdict(state), indent=2))
            write_checksums(partial)
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
        """Puts back what a killed process had put aside, and removes what it had not finished."""
        for aside in self.directory.glob(".before-*"):
            path = self.directory / aside.name.removeprefix(".before-")
            if path.exists():
                shutil.rmtree(aside)
            else:
                os.rename(aside, path)
        for partial in self.directory.glob(".partial-*"):
            shutil.rmtree(partial)

    def restore(self, model, path):
        """Puts a checkpoint into a compiled model; returns its `TrainingState`.

        Raises:
            DamagedCheckpoint: it cannot be read, or its numbers are not finite.
        """
        state = self.read_state(path)
        try:
            files = [WEIGHTS, "state.json", "state.npz"]
            check_checksums(path, files, is_required=state.run_id != "")
            model.load_weights(path / WEIGHTS)
            with np.load(path / "state.npz") as tensors:
                for name, variable in _rest(model).items():
                    variable.assign(tensors[name])
            if not all_finite([*model.weights, *_rest(model).values()]):
                raise ValueError("its numbers are not finite")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DamagedCheckpoint(path, error) from None
        return state

    def restore_newest(self, model, write=print):
        """Puts the newest whole checkpoint into a compiled model.

        A checkpoint that is damaged is named, and the one before it is tried.

        Args:
            model: compiled Keras model.
            write: called with a line for each damaged checkpoint.
        Returns:
            `(state, damaged)`: the `TrainingState`, None where there is no checkpoint at all, and
            the paths of the damaged checkpoints.
        Raises:
            ValueError: there are checkpoints, but none to go on from.
        """
        damaged = []
        for path in reversed(self.all()):
            if damaged and not (path / "state.npz").exists():
                break  # an older one, which has weights alone
            try:
                state = self.restore(model, path)
            except DamagedCheckpoint as error:
                write(f"damaged     {error.path}: {error.reason}")
                damaged.append(path)
            else:
                return state, damaged
        if damaged:
            raise ValueError(
                "Expected a whole checkpoint with the optimizer's state. Received: "
                f"{self.directory}, whose newest ones are damaged: "
                f"{', '.join(path.name for path in damaged)}. Start another run from the weights "
                f"that are left: --init-from {self.directory.parent}"
            )
        return None, []

    def put_aside(self, paths):
        """Renames damaged checkpoints, `step-...` to `damaged-step-...`, so that none is read."""
        for path in paths:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)

    def validated(self, write=print):
        """Returns the whole checkpoints that were validated, oldest first.

        Args:
            write: called with a line for each checkpoint that is damaged.
        """
        found = []
        for path in self.all():
            try:
                self.check(path)
            except DamagedCheckpoint as error:
                write(f"left out    {error.path}, which is damaged: {error.reason}")
            else:
                found += [path] if self.read_state(path).validated else []
        return found

    def best(self):
        """Returns the path of the checkpoint that validation found best, or None."""
        for path in reversed(self.all()):
            with contextlib.suppress(DamagedCheckpoint):  # the one before knows too, or nearly
                return self.path(self.read_state(path).best_step)
        return None

    def load_mean(self, model, paths):
        """Gives the model the mean of the weights of some checkpoints."""
        totals = [np.zeros(weight.shape, "float64") for weight in model.weights]
        for path in paths:
            model.load_weights(path / WEIGHTS)
            for total, weight in zip(totals, model.weights, strict=True):
                total += np.asarray(weight)
        for total, weight in zip(totals, model.weights, strict=True):
            weight.assign(total / len(paths))

    def _prune(self, state, keep):
        states = {}
        for path in self.all():
            with contextlib.suppress(DamagedCheckpoint):  # it stays: its owner may mend it
                states[path] = self.read_state(path)
        paths = list(states)
        validated = [path for path in paths if states[path].validated]
        # training may have to go on from any of the full ones, which have a best one each
        full = paths[-NUM_FULL:]
        best = {self.path(states[path].best_step) for path in full}
        kept = {*full, *validated[-keep:], *best, self.path(state.best_step)}
        for path in paths[:-NUM_FULL]:
            if path in kept:
                remove_with_checksum(path, "state.npz")  # two thirds of its size
            else:
                shutil.rmtree(path)


def _read_state(path):
    try:
        check_checksums(path, ["state.json"], is_required=False)  # an old one has none
        state = TrainingState(**json.loads((path / "state.json").read_text()))
        for field in dataclasses.fields(state):
            value = getattr(state, field.name)
            if not isinstance(value, int | float if field.type is float else field.type):
                raise ValueError(f"state.json has {field.name}={value!r}")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DamagedCheckpoint(path, error) from None
    return state


def bytes_of(variables):
    """Returns how many bytes a file of the variables has at the most."""
    entries = sum(math.prod(variable.shape) + 1024 for variable in variables)  # 4 KB of names each
    return 4 * entries


def all_finite(tensors):
    """Returns whether every number of some tensors or variables is finite."""
    return all(np.all(np.isfinite(np.asarray(tensor))) for tensor in tensors)


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
