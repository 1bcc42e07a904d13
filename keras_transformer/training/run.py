"""A run: the directory in which one model is trained, and what stands where in it.

RUN/config.yaml                         all settings
RUN/identity.json                       which run this is: its id, checksums of text and tokenizers
RUN/tokenizer/                          one tokenizer, or source and target
RUN/checkpoints/step-00000500/          weights, and in the newest the rest of the training's state
RUN/averaged.weights.h5                 the best mean of the last checkpoints, at the end
RUN/finished.json                       how training ended, and which weights are the best
RUN/metrics.jsonl                       one line a validation
RUN/tensorboard/
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import shutil
import uuid

import keras_transformer  # its rooms load when used: tokenizers need TensorFlow, training does not
from keras_transformer.checksums import checksum
from keras_transformer.config import Config
from keras_transformer.models import Transformer
from keras_transformer.training.checkpoints import WEIGHTS, Checkpoints, DamagedCheckpoint
from keras_transformer.whole_files import replacing

CHECKPOINTS = ("best", "last", "averaged")
TRAIN_FURTHER = "Train further: the training goes back to a whole checkpoint, if there is one."
LIMITS = ("max_steps", "max_minutes", "patience")

# What a second call may change of a run's settings: when it ends, how its model translates, how a
# step is computed where that changes nothing but rounding and the draws of dropout, and what helps
# a training that diverges.
FREE_SETTINGS = {
    "max_steps",
    "max_minutes",
    "patience",
    "keep_checkpoints",
    "gradient_accumulation_steps",
    "jit_compile",
    "peak_learning_rate",
    "warmup_steps",
    "clip_norm",
}


@dataclasses.dataclass(frozen=True)
class Identity:
    """Which run this is, so that nothing of another run is mixed with it.

    What is not known, as of a run of an earlier version of this package, is "" or None.
    """

    run_id: str = ""
    """Drawn at random when the run is made; each of its checkpoints has it."""
    training_text: str | None = None
    """Checksum of the training pairs."""
    validation_text: str | None = None
    """Checksum of the validation pairs."""
    tokenizers: str | None = None
    """Checksum of the tokenizers."""

    @classmethod
    def of(cls, corpora, tokenizers):
        """Returns the identity of a new run.

        Args:
            corpora: `(training, validation)`, two `ParallelCorpus`.
            tokenizers: `(source, target)`.
        """
        texts = (corpus.checksum() for corpus in corpora)
        return cls(uuid.uuid4().hex, *texts, checksum_of_tokenizers(tokenizers))


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
        self.identity_path = self.path / "identity.json"
        self.lock_path = self.path / ".lock"

    @property
    def exists(self):
        return self.config_path.is_file()

    @property
    def identity(self):
        """The `Identity` of the run; `ValueError` where its file is damaged."""
        try:
            content = json.loads(self.identity_path.read_text())
            if not all(isinstance(value, str | None) for value in content.values()):
                raise ValueError
            return Identity(content.pop("run_id"), **content)
        except FileNotFoundError:
            return Identity(Checkpoints(self.path / "checkpoints").stored_run_id())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError(
                f"Expected the identity of a run. Received: {self.identity_path}, which is "
                "damaged. Put a copy back, or remove it: the checkpoints say whose they are."
            ) from None

    @property
    def checkpoints(self):
        return Checkpoints(self.path / "checkpoints", self.identity.run_id)

    def check_usable(self):
        """Raises `ValueError` where the directory holds something else than a run."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"Expected a directory for the run. Received: the file {self.path}.")
        if not self.path.is_dir() or self.exists:
            return
        checkpoints = Checkpoints(self.path / "checkpoints")
        has_work = set(checkpoints.all()) - {checkpoints.path(0)}  # at step 0 there is none yet
        if has_work or self.averaged_path.exists():
            raise ValueError(
                f"Expected the settings of the run in {self.config_path}. Received: checkpoints "
                "or averaged weights without settings. Put the file back, or name another "
                "directory."
            )
        if any(self.path.iterdir()) and not self.lock_path.exists():
            raise ValueError(  # else it is a run that was killed while it was made
                "Expected a new or empty directory, or a run to go on with. "
                f"Received: {self.path}, which holds other files. Name another directory."
            )

    @contextlib.contextmanager
    def locked(self):
        """Keeps every other process from training here meanwhile.

        A directory that is made for the lock, and in which no run was made, is removed at the end.
        """
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        with self._lock_file():
            try:
                yield
            finally:
                if not self.exists and os.listdir(self.path) == [self.lock_path.name]:
                    self.lock_path.unlink()
                    with contextlib.suppress(OSError):  # another process uses it by now
                        for path in made:
                            path.rmdir()

    def _lock_file(self):
        """Returns an open file that is locked until it is closed."""
        import fcntl  # which Windows lacks; nothing else of this room needs it

        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                file = open(self.lock_path, "a")
            except FileNotFoundError:
                continue  # another process has just removed the directory that it had made
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.lock_path)):
                    return file
            except FileNotFoundError:
                pass  # the same, between the opening and the locking
            except OSError:
                file.close()
                raise ValueError(
                    f"Expected a run that nobody else trains. Received: {self.path}, where another "
                    "process is at work. Wait for it, or name another directory."
                ) from None
            file.close()

    def recover(self):
        """Brings a run that was killed into order: what was half written goes."""
        self.checkpoints.recover()
        for partial in self.path.glob(".[0-9]*.*"):  # of `replacing`
            partial.unlink()

    def create(self, config, source_tokenizer, target_tokenizer):
        """Writes the tokenizers, then the settings, which make the directory a run."""
        shutil.rmtree(self.tokenizer_path, ignore_errors=True)  # of a run that was killed here
        self.finished_path.unlink(missing_ok=True)  # of one whose other files somebody removed
        if source_tokenizer is target_tokenizer:
            source_tokenizer.save(self.tokenizer_path)
        else:
            source_tokenizer.save(self.tokenizer_path, "source")
            target_tokenizer.save(self.tokenizer_path, "target")
        config.save(self.config_path)

    def write_identity(self, identity):
        with replacing(self.identity_path) as partial:
            partial.write_text(json.dumps(dataclasses.asdict(identity), indent=2))

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
            tokenizers = [keras_transformer.tokenizers.load(self.tokenizer_path)] * 2
        else:
            tokenizers = [
                keras_transformer.tokenizers.load(self.tokenizer_path, name)
                for name in ("source", "target")
            ]
        expected = self.identity.tokenizers
        if expected not in (None, checksum_of_tokenizers(tokenizers)):
            raise ValueError(
                f"Expected the tokenizers that the run was made with. Received: other files, or "
                f"damaged ones, in {self.tokenizer_path}. Put a copy of the right ones back."
            )
        return tuple(tokenizers)

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
        """Returns the file of some weights, which is whole.

        Args:
            checkpoint: "best", "last" or "averaged"; None: the better one of "best" and "averaged"
                by validation when training has ended, "best" before.
        Raises:
            ValueError: there are no such weights, or they are damaged.
        """
        if checkpoint not in (None, *CHECKPOINTS):
            raise ValueError(f"Expected one of {CHECKPOINTS}. Received: checkpoint={checkpoint!r}.")
        checkpoint = checkpoint or self.default_checkpoint()
        try:
            return self._whole_weights_path(checkpoint)
        except DamagedCheckpoint as error:
            others = [name for name in CHECKPOINTS if name != checkpoint and self._is_whole(name)]
            remedy = f"Choose the {' or the '.join(others)} weights." if others else TRAIN_FURTHER
            raise ValueError(f"{error} {remedy}") from None

    def any_weights_path(self, write=print):
        """Returns the file of the weights that are the default or, where these are damaged, others.

        Args:
            write: called with a line that names the damaged weights, and those in their place.
        """
        try:
            return self.weights_path()
        except ValueError as error:
            for name in CHECKPOINTS:
                with contextlib.suppress(ValueError):
                    path = self._whole_weights_path(name)
                    write(f"damaged     {error} The {name} weights are used.")
                    return path
            whole = self.checkpoints.validated(write)
            if not whole:
                raise
            write(f"damaged     {error} The weights of {whole[-1]} are used.")
            return whole[-1] / WEIGHTS

    def _is_whole(self, checkpoint):
        try:
            self._whole_weights_path(checkpoint)
        except ValueError:
            return False
        return True

    def _whole_weights_path(self, checkpoint):
        """Returns the file of "best", "last" or "averaged" weights.

        Raises:
            DamagedCheckpoint: they are damaged.
            ValueError: there are none.
        """
        if checkpoint == "averaged":
            if not self.averaged_path.is_file():
                raise ValueError(
                    "Expected averaged weights, which a run has once its training has ended. "
                    f"Received: {self.path}, which has none. Use best or last, or train to the end."
                )
            expected = (self.finished() or {}).get("averaged_checksum")
            if expected not in (None, checksum(self.averaged_path)):
                reason = "it is not what its checksum in finished.json says"
                raise DamagedCheckpoint(self.averaged_path, reason)
            return self.averaged_path
        path = self.checkpoints.best() if checkpoint == "best" else self.checkpoints.newest()
        if path is None:
            raise ValueError(
                f"Expected a run with a checkpoint. Received: {self.path}, which has none yet. "
                "Train it further."
            )
        self.checkpoints.check(path)
        return path / WEIGHTS

    def default_checkpoint(self):
        """Returns which weights validation has found better, "best" or "averaged"."""
        finished = self.finished()
        if finished is None:
            return "best"
        if "checkpoint" in finished:
            return finished["checkpoint"]
        # an earlier version of this package averaged, and used the mean whatever came of it
        best_bleu, best = -1.0, self.checkpoints.best()
        with contextlib.suppress(DamagedCheckpoint):
            best_bleu = -1.0 if best is None else self.checkpoints.read_state(best).best_bleu
        mean_bleu = finished["metrics"].get("val_bleu", math.inf)
        return "averaged" if mean_bleu >= best_bleu else "best"

    def finished(self):
        """Returns how training ended, as a dict, or None while it has not."""
        try:
            finished = json.loads(self.finished_path.read_text())
            _check_finished(finished)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(
                f"Expected how the training ended. Received: {self.finished_path}, which is "
                "damaged. Remove it, and the training goes on."
            ) from None
        return finished


def checksum_of_tokenizers(tokenizers):
    """Returns the SHA-256 of the `(source, target)` tokenizers."""
    return hashlib.sha256(b"".join(tokenizer.serialized for tokenizer in tokenizers)).hexdigest()


def _check_finished(finished):
    """Raises `ValueError` or `TypeError` unless the content of `finished.json` is one."""
    kinds = {"step": int, "limit": str, "value": int | float, "reason": str, "metrics": dict}
    for name, kind in kinds.items():
        if not isinstance(finished[name], kind):
            raise ValueError(name)
    if not all(isinstance(value, int | float) for value in finished["metrics"].values()):
        raise ValueError("metrics")
    if finished["limit"] not in LIMITS or finished.get("checkpoint", "best") not in CHECKPOINTS:
        raise ValueError("limit")


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
        checkpoint: "best", "last" or "averaged"; None as in `Run.weights_path`.
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
