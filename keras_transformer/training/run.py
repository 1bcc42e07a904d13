"""A run: the directory in which one model is trained, and what stands where in it.

RUN/config.yaml                         all settings
RUN/tokenizer/                          one tokenizer, or source and target
RUN/checkpoints/step-00000500/          weights, and in the newest the rest of the training's state
RUN/averaged.weights.h5                 mean of the last checkpoints, when training has ended
RUN/metrics.jsonl                       one line a validation
RUN/tensorboard/
"""

import contextlib
import dataclasses
import json
import pathlib

import keras_transformer  # its rooms load when used: tokenizers need TensorFlow, training does not
from keras_transformer.config import Config
from keras_transformer.models import Transformer
from keras_transformer.training.checkpoints import Checkpoints

CHECKPOINTS = ("best", "last", "averaged")

# What a second call may change of a run's settings: when it ends, how its model translates, and how
# a step is computed where that changes nothing but rounding and the draws of dropout.
FREE_SETTINGS = {
    "max_steps",
    "max_minutes",
    "patience",
    "keep_checkpoints",
    "gradient_accumulation_steps",
    "jit_compile",
}


class Run:
    """The paths of a run directory, and what is read and written there.

    Args:
        path: the directory; it need not exist.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.config_path = self.path / "config.yaml"
        self.tokenizer_path = self.path / "tokenizer"
        self.averaged_path = self.path / "averaged.weights.h5"
        self.metrics_path = self.path / "metrics.jsonl"
        self.finished_path = self.path / "finished.json"
        self.tensorboard_path = self.path / "tensorboard"
        self.checkpoints = Checkpoints(self.path / "checkpoints")

    @property
    def exists(self):
        return self.config_path.is_file()

    def check_usable(self):
        """Raises `ValueError` where the directory holds something else than a run."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"Expected a directory for the run. Received: the file {self.path}.")
        if self.path.is_dir() and not self.exists and any(self.path.iterdir()):
            if not (self.path / ".lock").exists():  # else a run that was killed while it was made
                raise ValueError(
                    "Expected a new or empty directory, or a run to go on with. "
                    f"Received: {self.path}, which holds other files. Name another directory."
                )

    @contextlib.contextmanager
    def locked(self):
        """Keeps every other process from training here meanwhile."""
        import fcntl  # which Windows lacks; nothing else of this room needs it

        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"Expected a run that nobody else trains. Received: {self.path}, where another "
                    "process is at work. Wait for it, or name another directory."
                ) from None
            yield

    def create(self, config, source_tokenizer, target_tokenizer):
        """Writes the tokenizers, then the settings, which make the directory a run."""
        if source_tokenizer is target_tokenizer:
            source_tokenizer.save(self.tokenizer_path)
        else:
            source_tokenizer.save(self.tokenizer_path, "source")
            target_tokenizer.save(self.tokenizer_path, "target")
        config.save(self.config_path)

    def load_config(self):
        if not self.exists:
            raise ValueError(
                f"Expected a run directory, with a config.yaml. Received: {self.path}. "
                "Train one with `keras-transformer train`."
            )
        return Config.load(self.config_path)

    def load_tokenizers(self, config):
        """Returns `(source, target)`, twice the same one where they share their vocabulary."""
        if config.tokenizer.shared:
            tokenizer = keras_transformer.tokenizers.load(self.tokenizer_path)
            return tokenizer, tokenizer
        return tuple(
            keras_transformer.tokenizers.load(self.tokenizer_path, name)
            for name in ("source", "target")
        )

    def check_same(self, config):
        """Raises `ValueError` where `config` is of another model or training than this run's."""
        old, new = (dataclasses.asdict(c) for c in (self.load_config(), config))
        for group in ("data", "tokenizer", "model", "training"):
            for key in sorted(old[group].keys() | new[group].keys()):
                then, now = old[group].get(key), new[group].get(key)
                is_path = group == "data" and isinstance(then, str) and isinstance(now, str)
                if then != now and key not in FREE_SETTINGS and not is_path:
                    raise ValueError(
                        f"Expected the settings of the run in {self.path}: {group}.{key}={then!r}. "
                        f"Received: {group}.{key}={now!r}. Name another directory for another run."
                    )

    def weights_path(self, checkpoint=None):
        """Returns the file of "best", "last" or "averaged" weights; None: averaged, else best."""
        if checkpoint not in (None, *CHECKPOINTS):
            raise ValueError(f"Expected one of {CHECKPOINTS}. Received: checkpoint={checkpoint!r}.")
        if checkpoint in (None, "averaged") and self.averaged_path.is_file():
            return self.averaged_path
        if checkpoint == "averaged":
            raise ValueError(
                "Expected averaged weights, which stand in a run once its training has ended. "
                f"Received: {self.path}, which has none. Use best or last, or train to the end."
            )
        newest = self.checkpoints.newest()
        if newest is None:
            raise ValueError(
                f"Expected a run with a checkpoint. Received: {self.path}, which has none yet. "
                "Train it further."
            )
        if checkpoint == "last":
            return newest / "model.weights.h5"
        return (
            self.checkpoints.path(self.checkpoints.read_state(newest).best_step)
            / "model.weights.h5"
        )

    def finished(self):
        """Returns how training ended, as a dict, or None while it has not."""
        try:
            finished = json.loads(self.finished_path.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            finished = {}
        if not {"step", "limit", "value", "reason", "metrics"} <= finished.keys():
            raise ValueError(
                f"Expected how the training ended. Received: {self.finished_path}, which is "
                "damaged. Remove it, and the training goes on."
            )
        return finished


def build_model(config, source_tokenizer, target_tokenizer, dtype=None, model_class=Transformer):
    """Returns the untrained model of the settings, for the tokenizers' vocabularies."""
    target_vocab_size = None
    if target_tokenizer is not source_tokenizer:
        target_vocab_size = target_tokenizer.vocab_size
    model = model_class(source_tokenizer.vocab_size, target_vocab_size, **config.model, dtype=dtype)
    model.build()
    return model


def load_weights(model, path):
    """Gives the model the weights in a file; `ValueError` where they are another model's."""
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"Expected the weights of the model in config.yaml. Received: {path}: {reason} "
            "The file or the settings are damaged: take another checkpoint."
        ) from None


def load_run(path, checkpoint=None):
    """Returns `(model, source_tokenizer, target_tokenizer, config)` of a run.

    Args:
        path: the run directory.
        checkpoint: "best", "last" or "averaged"; None: averaged where there are such, else best.
    Raises:
        ValueError: no run there, or no such weights.
    """
    run = Run(path)
    config = run.load_config()
    weights_path = run.weights_path(checkpoint)
    source_tokenizer, target_tokenizer = run.load_tokenizers(config)
    model = build_model(config, source_tokenizer, target_tokenizer)
    load_weights(model, weights_path)
    return model, source_tokenizer, target_tokenizer, config
