"""The weights of a run: which there are, which training chose, and the model that has them."""

import contextlib
import inspect
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.config import Config
from keras_transformer.errors import InputError
from keras_transformer.files.checksums import checksum
from keras_transformer.files.regular import is_named, regular_file
from keras_transformer.models.ensemble import Ensemble
from keras_transformer.models.from_config import check_model_settings, model_class_of
from keras_transformer.runs.checkpoints import WEIGHTS, DamagedCheckpoint
from keras_transformer.runs.model_state import merge_adapter, read_weights
from keras_transformer.runs.run import CHECKPOINTS, Run, checksum_of_tokenizers
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    import keras

    from keras_transformer.tokenizers.tokenizer import Tokenizer

TRAIN_FURTHER = "Train further: training goes back to an undamaged checkpoint, if there is one."
IMPORT_AGAIN = "Import the model again, into another directory."


def load_run(
    path: StrPath, checkpoint: str | None = None, adapter: StrPath | None = None
) -> "tuple[keras.Model, Tokenizer, Tokenizer, Config]":
    """Returns `(model, source_tokenizer, target_tokenizer, config)` of a run.

    Args:
        path: the run directory.
        checkpoint: "best", "last" or "averaged"; None as in `weights_path`.
        adapter: the file of an adapter that was trained from these weights, to merge; or None.
    Raises:
        InputError: there is no run, there are no such weights, or the adapter is of others.
    """
    run = Run(path)
    config = run.load_config()
    try:
        check_model_settings(config)
    except ValueError as error:
        raise InputError(f"{error} (file: {run.config_path})") from None
    path_of_weights = weights_path(run, checkpoint)
    tokenizers = run.load_tokenizers(config)
    _check_sizes(config, tokenizers, path_of_weights)
    model = build_model(config, *tokenizers)
    load_weights(model, path_of_weights)
    if adapter is not None:
        merge_adapter(model, adapter)
    return model, *tokenizers, config


def load_ensemble(
    paths: Sequence[StrPath], checkpoint: str | None = None, **options: Any
) -> "tuple[Ensemble, Tokenizer, Tokenizer, Config]":
    """Returns what `load_run` does, for the `Ensemble` of several runs with the first's config.

    Args:
        paths: the run directories.
        checkpoint: of each run, see `load_run`.
        options: arguments of `Ensemble`.
    Raises:
        InputError: a run cannot be loaded, or the tokenizers of two runs differ.
    """
    check_same_tokenizers(paths)
    models, sources, targets, configs = zip(
        *(load_run(path, checkpoint) for path in paths), strict=True
    )
    return Ensemble(models, **options), sources[0], targets[0], configs[0]


def check_same_tokenizers(paths: Sequence[StrPath]) -> None:
    """Raises `InputError` unless all runs have the same tokenizers."""
    runs = map(Run, paths)
    checksums = {checksum_of_tokenizers(run.load_tokenizers(run.load_config())) for run in runs}
    if len(checksums) > 1:
        raise InputError(
            "Expected runs with the same tokenizer, so that they predict the same tokens. "
            f"Received: {', '.join(map(str, paths))}, whose tokenizers differ. Train them with one "
            "tokenizer: --set tokenizer.model=FILE, or --init-from the first."
        )


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
    with _naming_the_weights(path):
        read_weights(model, path)


@contextlib.contextmanager
def _naming_the_weights(path):
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"Expected the weights of the model in config.yaml. Received: {path}: {reason} "
            "The file or the settings are damaged: restore a copy, or choose another checkpoint."
        ) from None


def _check_sizes(config, tokenizers, path):
    """Raises `InputError` if a file of weights is too small for the model of the settings.

    A run that somebody else has made may describe a model that no memory can hold. So its large
    weights are looked up in the file before it is built.
    """
    parameters = inspect.signature(model_class_of(config).__init__).parameters
    sizes = {
        name: config.model_arguments.get(name, parameters[name].default) for name in parameters
    }
    d_model, num_layers = sizes["d_model"], sizes["num_layers"]
    num_blocks = num_layers + (sizes["num_decoder_layers"] or num_layers)
    needed = [(tokenizer.vocab_size, d_model, 1, "d_model") for tokenizer in tokenizers]
    needed += [(d_model, sizes["ff_dim"], num_blocks, "ff_dim")] if "ff_dim" in sizes else []
    needed += [(sizes["units"], sizes["units"], num_blocks, "units")] if "units" in sizes else []
    if sizes.get("positions") == "learned":
        needed.append((sizes["max_length"], d_model, 1, "max_length"))
    for attention in filter(lambda value: isinstance(value, dict), sizes.values()):
        if "num_features" in attention:
            needed.append((attention["num_features"], 1, 1, "num_features"))
    with _naming_the_weights(path):
        shapes = _shapes_in(path)
        for rows, columns, number, name in needed:
            if sum(shape[0] == rows and shape[1] >= columns for shape in shapes) < number:
                raise InputError(
                    f"{number} of the shape ({rows}, {columns}), as its {name} says, are not there."
                )


def _shapes_in(path):
    """Returns the shapes of the matrices in a file of weights, which must have all their bytes."""
    import h5py

    found = []
    with h5py.File(path) as file:
        file.visititems(lambda _, each: found.append(each) if hasattr(each, "shape") else None)
        if sum(dataset.nbytes for dataset in found) > path.stat().st_size:
            raise InputError("it has fewer bytes than its arrays.")
        return [dataset.shape for dataset in found if dataset.ndim == 2]


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
        if not is_named(run.path, run.averaged_path.name):
            end = "." if run.is_imported else ", or train to the end."
            raise InputError(
                "Expected averaged weights, which a run has after the end of its training. "
                f"Received: {run.path}, which has none. Use best or last{end}"
            )
        expected = (run.finished() or {}).get("averaged_checksum")
        try:
            found = checksum(regular_file(run.path, run.averaged_path.name))
        except OSError as error:
            raise DamagedCheckpoint(run.averaged_path, error.strerror) from None
        if expected not in (None, found):
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
