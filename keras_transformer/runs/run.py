"""A run: the directory in which one model is trained.

RUN/config.yaml                         all settings
RUN/identity.json                       id of the run, checksums of its text and tokenizers, command
RUN/tokenizer/                          one tokenizer, or source and target
RUN/checkpoints/step-00000500/          weights; the newest also hold the state of the optimizer
RUN/adapter.npz                         what LoRA has trained, after training
RUN/averaged.weights.h5                 the best mean of the last checkpoints, after training
RUN/finished.json                       how training ended, and which weights are best
RUN/metrics.jsonl                       one line per validation
RUN/tensorboard/
RUN/soft_labels.npz                     what other runs predict, for distillation from them
RUN/lexicon.npz                         for shortlists, by a training that has them or by `lexicon`
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import sys
import uuid
from collections.abc import Iterator
from typing import Any

from keras_transformer import tokenizers
from keras_transformer.config import Config, model_name
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import is_being_written, replacing
from keras_transformer.files.regular import SETTINGS_BYTES, is_named, read_regular, regular_file
from keras_transformer.files.version_numbers import remedy_for
from keras_transformer.runs.checkpoints import Checkpoints
from keras_transformer.runs.model_state import ADAPTER
from keras_transformer.tokenizers.tokenizer import Tokenizer
from keras_transformer.types import StrPath

CHECKPOINTS = ("best", "last", "averaged")
LIMITS = ("max_steps", "max_minutes", "patience")

# The settings that may change when a run goes on: its limits, how a step is computed (which changes
# only rounding and the random numbers of dropout), what helps a training that diverges, and what is
# only shown.
FREE_SETTINGS = {
    "max_steps",
    "max_minutes",
    "patience",
    "keep_checkpoints",
    "gradient_accumulation_steps",
    "rematerialize",
    "jit_compile",
    "peak_learning_rate",
    "warmup_steps",
    "clip_norm",
    "samples",
}


@dataclasses.dataclass(frozen=True)
class Identity:
    """Identifies a run, so that its files are not mixed with those of another run.

    Fields that are not known, as the text of an imported run, are "" or None.
    """

    run_id: str = ""
    """Random; every checkpoint of the run contains it."""
    training_text: str | None = None
    """Checksum of the training pairs."""
    validation_text: str | None = None
    """Checksum of the validation pairs."""
    tokenizers: str | None = None
    """Checksum of the tokenizers."""
    alignments: str | None = None
    """Checksum of the file of `training.guided_alignment`; None where there is none."""
    command: str | None = None
    """The command line that began the run, as typed; None where a program of the user did."""

    @classmethod
    def of(cls, corpora, tokenizers, alignments=None):
        """Returns the identity of a new run.

        Args:
            corpora: `(training, validation)`, two `ParallelCorpus`.
            tokenizers: `(source, target)`.
            alignments: checksum of their file, or None.
        """
        texts = (corpus.checksum() for corpus in corpora)
        return cls(
            uuid.uuid4().hex,
            *texts,
            tokenizers=checksum_of_tokenizers(tokenizers),
            alignments=alignments,
            command=_typed_command(),
        )


def _typed_command():
    """Returns the command line of this process, quoted for a shell; None if it is not ours."""
    program = pathlib.Path(sys.argv[0])
    if program.name == "keras-transformer":
        return shlex.join([program.name, *sys.argv[1:]])
    if program.parts[-2:] == ("keras_transformer", "__main__.py"):
        return shlex.join(["python", "-m", "keras_transformer", *sys.argv[1:]])
    return None


class Run:
    """A run directory: its paths, and what is read and written there.

    Args:
        path: the directory; it need not exist.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = pathlib.Path(path)
        self.config_path = self.path / "config.yaml"
        self.tokenizer_path = self.path / "tokenizer"
        self.averaged_path = self.path / "averaged.weights.h5"
        self.adapter_path = self.path / ADAPTER
        self.metrics_path = self.path / "metrics.jsonl"
        self.finished_path = self.path / "finished.json"
        self.tensorboard_path = self.path / "tensorboard"
        self.lexicon_path = self.path / "lexicon.npz"
        self.soft_labels_path = self.path / "soft_labels.npz"
        self.identity_path = self.path / "identity.json"
        self.lock_path = self.path / ".lock"

    @property
    def exists(self) -> bool:
        return self.config_path.is_file()

    @property
    def has_soft_labels(self) -> bool:
        """Whether the run goes on with labels that it has saved, for distillation.

        A process that was killed before it made the run may have left others.
        """
        return self.exists and self.soft_labels_path.exists()

    @property
    def is_imported(self) -> bool:
        """Whether the model comes from another program: its training cannot go on."""
        return self.identity_path.is_file() and self.identity.training_text is None

    @property
    def identity(self) -> Identity:
        """The `Identity` of the run; raises `InputError` if its file is damaged."""
        if not is_named(self.path, self.identity_path.name):
            return Identity(Checkpoints(self.path / "checkpoints").stored_state().run_id)
        try:
            content = json.loads(read_regular(self.path, self.identity_path.name, "an identity"))
            if not all(isinstance(value, str | None) for value in content.values()):
                raise InputError
            return Identity(content.pop("run_id"), **content)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(
                f"Expected the identity of a run. Received: {self.identity_path}, which is "
                "damaged. Restore a copy, or remove it: the checkpoints contain the run's id too."
            ) from None

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints", self.identity.run_id)

    def check_usable(self) -> None:
        """Raises `InputError` if the directory holds anything but a run."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"Expected a directory for the run. Received: the file {self.path}.")
        if not self.path.is_dir() or self.exists:
            return
        checkpoints = Checkpoints(self.path / "checkpoints")
        has_work = set(checkpoints.all()) - {checkpoints.path(0)}  # step 0 is no work yet
        if has_work or self.averaged_path.exists():
            raise InputError(
                f"Expected the settings of the run in {self.config_path}. Received: checkpoints "
                "or averaged weights without settings. Restore the file, or choose another "
                "directory."
            )
        if any(self.path.iterdir()) and not self.lock_path.exists():
            raise InputError(  # with a lock file, it is a run whose creation was interrupted
                "Expected a new or empty directory, or a run to go on with. "
                f"Received: {self.path}, which holds other files. Choose another directory."
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Prevents other processes from training in this directory.

        At the end, it removes a directory that it has created if there is no run in it.
        """
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        with self._lock_file():
            try:
                yield
            finally:
                if not self.exists and os.listdir(self.path) == [self.lock_path.name]:
                    self.lock_path.unlink()
                    with contextlib.suppress(OSError):  # another process may use it
                        for path in made:
                            path.rmdir()

    def _lock_file(self):
        """Returns an open file that is locked until it is closed."""
        import fcntl  # Windows does not have it, and nothing else here needs it

        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                file = open(self.lock_path, "a")
            except FileNotFoundError:
                continue  # another process has just removed the directory
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.lock_path)):
                    return file
            except FileNotFoundError:
                pass  # the same, after the file was opened
            except BlockingIOError:
                file.close()
                raise InputError(
                    f"Expected a run that no other process trains. Received: {self.path}, where "
                    "another process is training. Wait for it, or choose another directory."
                ) from None
            except OSError as error:
                file.close()
                raise InputError(
                    "Expected a file system that locks files, so that no other process trains in "
                    f"the same directory. Received: {self.path}: {error.strerror}. Choose another "
                    "file system, or mount this one with locks (flock)."
                ) from None
            file.close()

    def recover(self) -> None:
        """Removes the unfinished files of a killed process."""
        self.checkpoints.recover()
        for partial in self.path.glob(".[0-9]*.*"):  # of `replacing`
            if not is_being_written(partial):  # as a lexicon may be, which needs no lock
                partial.unlink(missing_ok=True)

    def create(
        self, config: Config, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
    ) -> None:
        """Writes the tokenizers, then the settings, which make the directory a run."""
        shutil.rmtree(self.tokenizer_path, ignore_errors=True)  # left by a killed process
        self.finished_path.unlink(missing_ok=True)  # left when somebody removed the other files
        save_tokenizers(self.tokenizer_path, source_tokenizer, target_tokenizer)
        config.save(self.config_path)

    def write_identity(self, identity: Identity) -> None:
        with replacing(self.identity_path) as partial:
            partial.write_text(json.dumps(dataclasses.asdict(identity), indent=2))

    def load_config(self) -> Config:
        if not self.exists:
            raise InputError(
                f"Expected a run directory, with a config.yaml. Received: {self.path}. "
                + remedy_for(
                    self.path,
                    "Train one with `keras-transformer train`, or import a model of OPUS-MT with "
                    "`keras-transformer import`.",
                )
            )
        try:
            return Config.load(regular_file(self.path, self.config_path.name, SETTINGS_BYTES))
        except OSError as error:
            raise InputError(
                f"Expected the settings of a run. Received: {self.config_path}: {error.strerror}."
            ) from None

    def load_tokenizers(self, config: Config) -> tuple[Tokenizer, Tokenizer]:
        """Returns `(source, target)`, the same tokenizer twice where one file is for both.

        Those of an imported run share a vocabulary and split text in two ways: it has two files.
        """
        tokenizers = load_tokenizers(self.tokenizer_path, config.tokenizer.shared)
        expected = self.identity.tokenizers
        if expected not in (None, checksum_of_tokenizers(tokenizers)):
            raise InputError(
                f"Expected the tokenizers that the run began with. Received: other or damaged "
                f"files in {self.tokenizer_path}. Restore a copy of the right files."
            )
        return tokenizers

    def check_same(self, config: Config) -> None:
        """Raises `InputError` if `config` describes another model or training than this run's."""
        old, new = (dataclasses.asdict(c) for c in (self.load_config(), config))
        for model in (old["model"], new["model"]):
            model["name"] = model_name(model)  # which need not be named
        for data in (old["data"], new["data"]):
            data["prepared"] = data["prepared"] and "a directory"  # likewise
            for corpus in data["train"] + data["valid"]:  # whose text has a checksum
                corpus.update(source=None, target=None, tsv="any")
        for training in (old["training"], new["training"]):
            if training["guided_alignment"] not in (None, "lexicon"):
                training["guided_alignment"] = "a file"  # whose links have a checksum
        for group in ("data", "tokenizer", "model", "training"):
            for key in sorted(old[group].keys() | new[group].keys()):
                then, now = old[group].get(key), new[group].get(key)
                if then != now and key not in FREE_SETTINGS:
                    raise InputError(
                        f"Expected the settings of the run in {self.path}: {group}.{key}={then!r}. "
                        f"Received: {group}.{key}={now!r}. Choose another directory for a new run."
                    )

    def finished(self) -> dict[str, Any] | None:
        """Returns the content of `finished.json`, or None if training has not ended."""
        if not is_named(self.path, self.finished_path.name):
            return None
        try:
            finished = json.loads(read_regular(self.path, self.finished_path.name, "its end"))
            _check_finished(finished)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InputError(
                f"Expected how the training ended. Received: {self.finished_path}, which is "
                "damaged. Remove it to go on training."
            ) from None
        return finished


def save_tokenizers(directory, source, target):
    """Writes the two tokenizers, or the one for both, to a directory."""
    if source is target:
        source.save(directory)
    else:
        source.save(directory, "source")
        target.save(directory, "target")


def load_tokenizers(directory, shared):
    """Returns the `(source, target)` that `save_tokenizers` wrote.

    Args:
        shared: whether they share a vocabulary; they may be two even then.
    """
    if shared and not any(directory.glob("source.*")):
        return (tokenizers.load(directory),) * 2
    return tokenizers.load(directory, "source"), tokenizers.load(directory, "target")


def checksum_of_tokenizers(tokenizers):
    """Returns the SHA-256 of the `(source, target)` tokenizers."""
    return hashlib.sha256(b"".join(tokenizer.serialized for tokenizer in tokenizers)).hexdigest()


def _check_finished(finished):
    """Raises `ValueError`, `KeyError` or `TypeError` if the content is not a `finished.json`."""
    types = {"step": int, "limit": str, "value": int | float, "reason": str, "metrics": dict}
    for name, expected in types.items():
        if not isinstance(finished[name], expected):
            raise InputError(name)
    if not all(isinstance(value, int | float) for value in finished["metrics"].values()):
        raise InputError("metrics")
    if finished["limit"] not in LIMITS or finished["checkpoint"] not in CHECKPOINTS:
        raise InputError("limit")
