"""Writes a translator as one SavedModel for TensorFlow Serving: whole, or not at all."""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import shutil
import uuid

import keras
import tensorflow as tf

import keras_transformer
from keras_transformer.checksums import write_checksums
from keras_transformer.export.settings import SETTINGS
from keras_transformer.export.signatures import served_functions
from keras_transformer.export.verification import random_sentences, verify
from keras_transformer.export.warmup import write_warmup_requests
from keras_transformer.special_ids import END_ID, START_ID, UNKNOWN_ID
from keras_transformer.training.run import load_run
from keras_transformer.translator import Translator

WARMUP_ROWS = 16
HIGHEST_VERSION = 2**63 - 1


def export_saved_model(
    translator,
    directory,
    decoding=None,
    n_best=1,
    version=None,
    checkpoint=None,
    split_sentences=False,
):
    """Exports a translator to `directory/<version>/`, proven in a fresh process.

    The version appears when everything is written and proven (`verify`). Until then the files
    stand beside it in a hidden directory, which goes if anything fails. The search is fixed in
    the export, and so are the weights, in float32; `served_functions` says which signatures it has.

    Args:
        translator: `Translator`, or the path of a run directory.
        directory: path; made where it is missing.
        decoding: `DecodingConfig`; None: the translator's own.
        n_best: translations that the signature `n_best` gives, at most the beam size.
        version: int above 0; None: one more than the highest there.
        checkpoint: of a run directory, "best", "last" or "averaged"; None as in `load_run`.
        split_sentences: whether the export translates a text sentence by sentence, and joins the
            answers: long texts are not cut.
    Returns:
        `pathlib.Path` of the new version.
    Raises:
        ValueError: `directory` is a file, the version exists, `n_best` is larger than the beam,
            or Keras runs on another backend than TensorFlow. Nothing has been written.
        ExportError: the fresh process translates otherwise than the translator. Nothing stays.
    """
    directory = pathlib.Path(directory)
    _check_destination(directory, version)
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "An export needs Keras on TensorFlow. Received: "
            f"backend={keras.backend.backend()}. Set KERAS_BACKEND=tensorflow; weights move over."
        )
    if not isinstance(translator, Translator):
        model, source_tokenizer, target_tokenizer, config = load_run(translator, checkpoint)
        translator = Translator(model, source_tokenizer, target_tokenizer, config.decoding)
    translator = Translator(
        _in_float32(translator.model),
        translator.tokenizer,
        translator.target_tokenizer,
        decoding or translator.decoding,
    )
    if not 1 <= n_best <= translator.decoding.beam_size:
        raise ValueError(
            "n_best must be from 1 to the beam size. Received: "
            f"n_best={n_best}, beam_size={translator.decoding.beam_size}. Raise the beam size."
        )
    with _temporary_directory(directory) as temporary:
        _write(translator, n_best, split_sentences, temporary)
        verification = verify(temporary, translator, split_sentences)
        _write_settings(translator, n_best, split_sentences, verification, temporary)
        write_checksums(temporary)
        return _publish(temporary, directory, version)


def _check_destination(directory, version):
    present = next(path for path in (directory, *directory.parents) if path.exists())
    if not present.is_dir():
        raise ValueError(
            f"Expected a directory to export to. Received: directory={directory}, where {present} "
            "is a file. Name another."
        )
    if (directory / "config.yaml").exists():
        raise ValueError(
            f"Expected a directory for exports. Received: directory={directory}, a run, which "
            "could not be found any more behind its export. Name another."
        )
    if version is not None and not 1 <= version <= HIGHEST_VERSION:
        raise ValueError(
            f"Expected a version from 1 to {HIGHEST_VERSION}, the highest that TensorFlow Serving "
            f"reads. Received: version={version}. Leave it out, and the next free one is taken."
        )
    if version is not None and (directory / str(version)).exists():
        raise ValueError(
            f"Expected a version that does not exist. Received: version={version}, and there is "
            f"{directory / str(version)}. Leave the version out, and the next free one is taken."
        )


def _in_float32(model):
    """Returns the model, or a copy with its weights that computes in float32.

    Half the bits make a translation depend on its neighbours in the batch, and a CPU slow.
    """
    if model.compute_dtype == "float32":
        return model
    config = {**model.get_config(), "dtype": "float32"}
    copy = type(model).from_config(config)
    copy.build()
    copy.set_weights(model.get_weights())
    return copy


@contextlib.contextmanager
def _temporary_directory(directory):
    """Makes a hidden directory in `directory`; what is still there at the end goes.

    So does what an export that was killed has left. An export that is at work holds a lock.
    """
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".export-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as briefly:
            _lock(directory, fcntl.LOCK_EX, briefly)  # nobody takes ours for a leftover meanwhile
            for leftover in directory.glob(".export-*"):
                if _lock(leftover, fcntl.LOCK_EX | fcntl.LOCK_NB, briefly):
                    shutil.rmtree(leftover, ignore_errors=True)
            temporary.mkdir()
            _lock(temporary, fcntl.LOCK_EX, stack)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # not empty: the export stands in it
                    directory.rmdir()


def _lock(directory, how, stack):
    """Locks a directory until `stack` is closed; returns whether that was possible."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, how)
    except OSError:  # another export holds it, or the file system, such as NFS, has no such locks
        return False
    return True


def _write(translator, n_best, split_sentences, path):
    """Writes the SavedModel.

    What is tracked is the plain `tf.Variable` of each weight, not the Keras model: Keras would
    export a copy of each, and the functions read the original, which a server then cannot find.
    """
    tracked = tf.Module()
    tracked.weights = [weight.value for weight in translator.model.weights]
    # some a second time, in the form that decoding reads: no call need make them
    tracked.decoding_weights = tf.nest.map_structure(
        lambda weight: tf.Variable(weight, trainable=False), translator.model.decoding_weights()
    )
    tracked.tokenizers = [translator.tokenizer, translator.target_tokenizer]
    functions = served_functions(
        translator.model,
        translator.tokenizer,
        translator.target_tokenizer,
        translator.decoding,
        n_best,
        tracked.decoding_weights,
        split_sentences,
    )
    tf.saved_model.save(tracked, str(path), signatures=functions)
    write_warmup_requests(path, _warmup_requests(functions, translator))


def _warmup_requests(functions, translator):
    """Returns a request for each signature, and one of many rows for what is asked most."""
    texts = [text.decode() for text in random_sentences(translator.tokenizer, WARMUP_ROWS)]
    inputs = {"text": texts[:1], "target": texts[:1], "ids": [[START_ID, UNKNOWN_ID, END_ID]]}
    requests = [
        (name, {spec.name: inputs[spec.name] for spec in function.input_signature})
        for name, function in functions.items()
    ]
    return [*requests, ("serving_default", {"text": texts})]


def _write_settings(translator, n_best, split_sentences, verification, path):
    settings = {
        "keras_transformer": keras_transformer.__version__,
        "decoding": dataclasses.asdict(translator.decoding),
        "n_best": n_best,
        "split_sentences": split_sentences,
        "source_vocab_size": translator.tokenizer.vocab_size,
        "target_vocab_size": translator.target_tokenizer.vocab_size,
        "model": keras.saving.serialize_keras_object(translator.model)["config"],
        "verification": verification._asdict(),
        "checksums": True,
    }
    (path / SETTINGS).parent.mkdir(exist_ok=True)
    (path / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n")


def _publish(temporary, directory, version):
    """Gives the export its version; of several exports at once each gets its own."""
    while True:
        path = directory / str(version or _next_version(directory))
        try:
            if path.exists():  # a rename would take the place of an empty directory
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            os.rename(temporary, path)
            return path
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            _check_destination(directory, version)


def _next_version(directory):
    """Returns one more than the highest version: the highest is what a server serves."""
    present = [int(name) for name in os.listdir(directory) if name.isdecimal()]
    version = 1 + max((n for n in present if n <= HIGHEST_VERSION), default=0)
    if version > HIGHEST_VERSION:
        raise ValueError(
            f"Expected a directory with a free version. Received: {directory}, which has the "
            f"highest one, {HIGHEST_VERSION}. Name a lower version, or another directory."
        )
    return version
