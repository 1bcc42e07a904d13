"""The weights of a run: which there are, which training chose, and the model that has them."""

import contextlib
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_transformer.config import Config
from keras_transformer.errors import InputError
from keras_transformer.files.checksums import checksum
from keras_transformer.models.from_config import check_model_settings, model_class_of
from keras_transformer.runs.checkpoints import WEIGHTS, DamagedCheckpoint
from keras_transformer.runs.model_state import read_weights
from keras_transformer.runs.run import CHECKPOINTS, Run
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    import keras

    from keras_transformer.tokenizers.tokenizer import Tokenizer

TRAIN_FURTHER = "Train further: training goes back to an undamaged checkpoint, if there is one."
IMPORT_AGAIN = "Import the model again, into another directory."


def load_run(
    path: StrPath, checkpoint: str | None = None
) -> "tuple[keras.Model, Tokenizer, Tokenizer, Config]":
    """Returns `(model, source_tokenizer, target_tokenizer, config)` of a run.

    Args:
        path: the run directory.
        checkpoint: "best", "last" or "averaged"; None as in `weights_path`.
    Raises:
        InputError: there is no run, or there are no such weights.
    """
    run = Run(path)
    config = run.load_config()
    try:
        check_model_settings(config)
    except ValueError as error:
        raise InputError(f"{error} (file: {run.config_path})") from None
    path_of_weights = weights_path(run, checkpoint)
    tokenizers = run.load_tokenizers(config)
    model = build_model(config, *tokenizers)
    load_weights(model, path_of_weights)
    return model, *tokenizers, config


def build_model(config, source_tokenizer, target_tokenizer, dtype=None, model_class=None):
    """Returns the untrained model of the settings, for the vocabularies of the tokenizers.

    Args:
        config: `Config`.
        source_tokenizer, target_tokenizer: of the same vocabulary if the settings say so.
        dtype: Keras dtype policy, or None for the default.
        model_class: None: that of the settings; otherwise a subclass of it.
    """
    target_vocab_size = None if config.tokenizer.shared else target_tokenizer.vocab_size
    model = (model_class or model_class_of(config))(
        source_tokenizer.vocab_size, target_vocab_size, **config.model_arguments, dtype=dtype
    )
    model.build()
    return model


def load_weights(model, path):
    """Gives the model the weights in a file; raises `InputError` if they do not fit."""
    try:
        read_weights(model, path)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"Expected the weights of the model in config.yaml. Received: {path}: {reason} "
            "The file or the settings are damaged: restore a copy, or choose another checkpoint."
        ) from None


def weights_path(run: Run, checkpoint: str | None = None) -> pathlib.Path:
    """Returns the path of a file of weights that is not damaged.

    Args:
        run: the run.
        checkpoint: "best", "last" or "averaged". None means "best" during training, and after it
            "best" or "averaged", as the training chose by validation.
    Raises:
        InputError: there are no such weights, or they are damaged.
    """
    if checkpoint not in (None, *CHECKPOINTS):
        raise InputError(f"Expected one of {CHECKPOINTS}. Received: checkpoint={checkpoint!r}.")
    checkpoint = checkpoint or (run.finished() or {"checkpoint": "best"})["checkpoint"]
    try:
        return _path_of(run, checkpoint)
    except DamagedCheckpoint as error:
        remedy = IMPORT_AGAIN if run.is_imported else TRAIN_FURTHER
        if others := _undamaged(run):
            remedy = f"Choose the {' or the '.join(others)} weights."
        raise InputError(f"{error} {remedy}") from None


def any_weights_path(run: Run, write: Callable[[str], Any] = print) -> pathlib.Path:
    """Returns the file of the default weights, or of others if these are damaged.

    Args:
        run: the run.
        write: called with a line that names the damaged weights and those used instead.
    """
    try:
        return weights_path(run)
    except ValueError as error:
        for name, path in _undamaged(run).items():
            write(f"damaged     {error} The {name} weights are used.")
            return path
        whole = run.checkpoints.validated(write)
        if not whole:
            raise
        write(f"damaged     {error} The weights of {whole[-1]} are used.")
        return whole[-1] / WEIGHTS


def _undamaged(run):
    """Returns the weights that can be loaded: dict from "best", "last" or "averaged" to a path."""
    found = {}
    for checkpoint in CHECKPOINTS:
        with contextlib.suppress(ValueError):
            found[checkpoint] = _path_of(run, checkpoint)
    return found


def _path_of(run, checkpoint):
    """Returns the path of "best", "last" or "averaged" weights.

    Raises:
        DamagedCheckpoint: they are damaged.
        InputError: there are none.
    """
    if checkpoint == "averaged":
        if not run.averaged_path.is_file():
            end = "." if run.is_imported else ", or train to the end."
            raise InputError(
                "Expected averaged weights, which a run has after the end of its training. "
                f"Received: {run.path}, which has none. Use best or last{end}"
            )
        expected = (run.finished() or {}).get("averaged_checksum")
        if expected not in (None, checksum(run.averaged_path)):
            reason = "it does not match its checksum in finished.json"
            raise DamagedCheckpoint(run.averaged_path, reason)
        return run.averaged_path
    path = run.checkpoints.best() if checkpoint == "best" else run.checkpoints.newest()
    if path is None:
        raise InputError(
            f"Expected a run with a checkpoint. Received: {run.path}, which has none yet. "
            + (IMPORT_AGAIN if run.is_imported else "Train it further.")
        )
    run.checkpoints.check(path)
    return path / WEIGHTS
