"""Checkpoints: everything that a training needs to go on as if it had not been interrupted.

step-00000500/model.weights.h5    weights, written by Keras
step-00000500/state.json          step, position in the data, best score, minutes
step-00000500/state.npz           state of optimizer and dropout; only in the newest checkpoints
step-00000500/adapter.npz         of a training with LoRA
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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import check_space, partial_directory, put_in_place
from keras_transformer.files.checksums import check_checksums, remove_with_checksum, write_checksums
from keras_transformer.layers.lora import adapted_layers
from keras_transformer.runs.model_state import (
    ADAPTER,
    all_finite,
    bytes_of,
    read_weights,
    training_state,
    write_adapter,
    write_weights,
)
from keras_transformer.types import StrPath, Tensor

if TYPE_CHECKING:
    import keras

WEIGHTS = "model.weights.h5"
NUM_FULL = 2
"""Number of newest checkpoints that keep the optimizer's state: two, as one may be damaged."""


@dataclasses.dataclass
class TrainingState:
    """The progress of a training."""

    step: int = 0
    """Number of optimizer steps done."""
    epoch: int = 0
    """Epoch of the data that contains the next batch."""
    index: int = 0
    """Index of the next batch in its epoch."""
    best_score: float = -1.0
    """Best validation score so far, such as BLEU, without its noise."""
    best_loss: float = math.inf
    """Lowest validation loss of the checkpoints with that score."""
    best_step: int = 0
    """Step of the checkpoint with that score and that loss."""
    lowest_loss: float = math.inf
    """Validation loss when it last fell clearly."""
    validations_without_better: int = 0
    """Number of validations since the score rose or the loss fell clearly."""
    minutes: float = 0.0
    """Minutes of training so far, validations included."""
    seconds_per_step: float = 0.0
    """Measured speed, for a schedule that ends when the minutes are over; 0: not measured."""
    seconds_per_validation: float = 0.0
    """The same, for what comes between two steps: validation and checkpoint."""
    validated: bool = True
    """False if an interruption caused the checkpoint: it is not kept long and not averaged."""
    in_validation: bool = False
    """Whether that interruption was during a validation, which must be repeated."""
    training_logs: dict = dataclasses.field(default_factory=dict)
    """Training loss and metrics of the epoch whose validation was interrupted."""
    num_pairs: int = 0
    """Number of training pairs per epoch, to notice if the data has changed."""
    num_target_tokens: int = 0
    """Number of target tokens per epoch, without padding, for the same purpose."""
    run_id: str = ""
    """The run that the checkpoint belongs to."""


class DamagedCheckpoint(InputError):
    """A file of a checkpoint is missing or damaged."""

    def __init__(self, path, error):
        self.path = path
        self.reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        super().__init__(
            f"Expected an undamaged checkpoint. Received: {path}, which is damaged ({self.reason})."
        )


class Checkpoints:
    """The checkpoints in one directory.

    A checkpoint is written under another name and then renamed. It is therefore complete or absent,
    even if the process is killed or the disk is full.

    Args:
        directory: created when the first checkpoint is saved.
        run_id: str; checkpoints of another run are refused.
    """

    def __init__(self, directory: StrPath, run_id: str = "") -> None:
        self.directory = pathlib.Path(directory)
        self.run_id = run_id

    def path(self, step: Tensor) -> pathlib.Path:
        return self.directory / f"step-{step:08d}"

    def all(self) -> list[pathlib.Path]:
        """Returns the checkpoints' paths, oldest first."""
        return sorted(self.directory.glob(f"step-{'[0-9]' * 8}"))

    def newest(self) -> pathlib.Path | None:
        """Returns the newest checkpoint's path, or None."""
        return self.all()[-1] if self.all() else None

    def stored_state(self) -> TrainingState:
        """Returns the state in the newest readable checkpoint, or that of a new training."""
        for path in reversed(self.all()):
            with contextlib.suppress(DamagedCheckpoint):
                return _read_state(path)
        return TrainingState()

    def read_state(self, path: pathlib.Path) -> TrainingState:
        """Returns the `TrainingState` of a checkpoint.

        Raises:
            DamagedCheckpoint: it cannot be read.
            InputError: it belongs to another run.
        """
        state = _read_state(path)
        if state.run_id != self.run_id:
            raise InputError(
                f"Expected checkpoints of one run. Received: {path}, which belongs to another run "
                f"than {self.directory.parent}. Move it to another directory."
            )
        return state

    def check(self, path: pathlib.Path) -> None:
        """Raises `DamagedCheckpoint` if the weights or the state are not as they were saved."""
        self.read_state(path)
        try:
            check_checksums(path, [WEIGHTS, "state.json"])
        except ValueError as error:
            raise DamagedCheckpoint(path, error) from None

    def save(self, model: "keras.Model", state: TrainingState, keep: int) -> None:
        """Writes a checkpoint, then deletes all except the last `keep` and the best.

        Raises:
            FloatingPointError: a weight or the optimizer's state is not finite. Nothing is written,
                as no training could go on from there.
        """
        state.run_id = self.run_id
        rest: dict[str, Any] = {
            name: np.asarray(value) for name, value in training_state(model).items()
        }
        if not all_finite([*model.weights, *rest.values()]):
            raise FloatingPointError("the weights or the optimizer's state are not finite")
        self._write(model, state, rest)
        self._prune(state, keep)

    def save_weights(self, model: "keras.Model", state: TrainingState) -> None:
        """Writes a checkpoint without the state of an optimizer: no training can go on from it."""
        state.run_id = self.run_id
        self._write(model, state, None)

    def _write(self, model, state, rest):
        """Writes a checkpoint; `rest` is a dict of the arrays in state.npz, or None."""
        path = self.path(state.step)
        with partial_directory(self.directory) as partial:
            check_space(partial, bytes_of(model.weights) + bytes_of((rest or {}).values()))
            write_weights(model, partial / WEIGHTS)
            if adapted_layers(model):
                write_adapter(model, partial / ADAPTER)
            if rest is not None:
                np.savez(partial / "state.npz", **rest)
            values = dataclasses.asdict(state).items()
            known = {name: value for name, value in values if value != math.inf}  # no JSON number
            (partial / "state.json").write_text(json.dumps(known, indent=2))
            write_checksums(partial)
            # the same step again: validated now, or after a later one was lost
            put_in_place(partial, path, aside=self.directory / f".before-{path.name}")

    def recover(self) -> None:
        """Moves back what a killed process had moved aside, and removes its unfinished files."""
        for aside in self.directory.glob(".before-*"):
            path = self.directory / aside.name.removeprefix(".before-")
            if path.exists():
                shutil.rmtree(aside)
            else:
                os.rename(aside, path)
        for partial in self.directory.glob(".partial-*"):
            shutil.rmtree(partial)

    def restore(self, model: "keras.Model", path: pathlib.Path) -> TrainingState:
        """Gives a compiled model the content of a checkpoint; returns its `TrainingState`.

        Raises:
            DamagedCheckpoint: it cannot be read, or its numbers are not finite.
        """
        state = self.read_state(path)
        try:
            check_checksums(path, [WEIGHTS, "state.json", "state.npz"])
            read_weights(model, path / WEIGHTS)
            with np.load(path / "state.npz") as tensors:
                variables = training_state(model)
                for key, variable in variables.items():
                    variable.assign(tensors[key])
            if not all_finite([*model.weights, *variables.values()]):
                raise InputError("its numbers are not finite")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DamagedCheckpoint(path, error) from None
        return state

    def restore_newest(
        self, model: "keras.Model", write: Callable[[str], Any] = print
    ) -> tuple[TrainingState | None, list[pathlib.Path]]:
        """Gives a compiled model the content of the newest checkpoint that is not damaged.

        Args:
            model: compiled Keras model.
            write: called with a line for each damaged checkpoint.
        Returns:
            `(state, damaged)`: the `TrainingState`, or None if there is no checkpoint at all, and
            the paths of the damaged checkpoints.
        Raises:
            InputError: there are checkpoints, but the training cannot go on from any of them.
        """
        damaged: list[pathlib.Path] = []
        for path in reversed(self.all()):
            if damaged and not (path / "state.npz").exists():
                break  # older checkpoints hold only weights
            try:
                state = self.restore(model, path)
            except DamagedCheckpoint as error:
                write(f"damaged     {error.path}: {error.reason}")
                damaged.append(path)
            else:
                return state, damaged
        if damaged:
            raise InputError(
                "Expected an undamaged checkpoint with the optimizer's state. Received: "
                f"{self.directory}, whose newest checkpoints are damaged: "
                f"{', '.join(path.name for path in damaged)}. Start another run from the weights "
                f"that are left: --init-from {self.directory.parent}"
            )
        return None, []

    def mark_damaged(self, paths: Sequence[pathlib.Path]) -> None:
        """Renames damaged checkpoints from `step-...` to `damaged-step-...`."""
        for path in paths:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)

    def validated(self, write: Callable[[str], Any] = print) -> list[pathlib.Path]:
        """Returns the undamaged checkpoints that were validated, oldest first.

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

    def best(self) -> pathlib.Path | None:
        """Returns the path of the checkpoint with the best validation score, or None."""
        for path in reversed(self.all()):
            with contextlib.suppress(DamagedCheckpoint):  # the one before names it too, or nearly
                return self.path(self.read_state(path).best_step)
        return None

    def load_mean(self, model: "keras.Model", paths: Sequence[pathlib.Path]) -> None:
        """Gives the model the mean of the weights of some checkpoints."""
        totals = [np.zeros(weight.shape, "float64") for weight in model.weights]
        for path in paths:
            read_weights(model, path / WEIGHTS)
            for total, weight in zip(totals, model.weights, strict=True):
                total += np.asarray(weight)
        for total, weight in zip(totals, model.weights, strict=True):
            weight.assign(total / len(paths))

    def _prune(self, state, keep):
        states = {}
        for path in self.all():
            with contextlib.suppress(DamagedCheckpoint):  # it stays: somebody may repair it
                states[path] = self.read_state(path)
        paths = list(states)
        validated = [path for path in paths if states[path].validated]
        # training may go on from any of the full ones, and each names a best one
        full = paths[-NUM_FULL:]
        best = {self.path(states[path].best_step) for path in full}
        kept = {*full, *validated[-keep:], *best, self.path(state.best_step)}
        for path in paths[:-NUM_FULL]:
            if path in kept:
                remove_with_checksum(path, "state.npz")  # two thirds of the size
            else:
                shutil.rmtree(path)


def _read_state(path):
    try:
        check_checksums(path, ["state.json"])
        state = TrainingState(**json.loads((path / "state.json").read_text()))
        for field in dataclasses.fields(state):
            value = getattr(state, field.name)
            if not isinstance(value, int | float if field.type is float else field.type):
                raise InputError(f"state.json has {field.name}={value!r}")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DamagedCheckpoint(path, error) from None
    return state
