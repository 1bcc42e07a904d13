"""Translators of OPUS-MT and others that Marian has trained (https://marian-nmt.github.io).

`read_marian` returns the translator in their files, and `import_run` makes an ordinary run of it.
"""

import pathlib
import uuid
from collections.abc import Callable
from typing import Any

from keras_transformer.config import Config, TokenizerConfig
from keras_transformer.convert.marian_hugging_face import read_hugging_face
from keras_transformer.convert.marian_npz import read_npz
from keras_transformer.convert.weights import Settings
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import new_directory
from keras_transformer.files.checksums import check_if_listed
from keras_transformer.files.regular import is_named
from keras_transformer.files.text import check_directory
from keras_transformer.files.version_numbers import remedy_for
from keras_transformer.runs.checkpoints import Checkpoints, TrainingState
from keras_transformer.runs.run import Identity, Run, checksum_of_tokenizers
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

NO_SETTINGS = ("name", "trainable", "dtype", "source_vocab_size", "target_vocab_size")
"""What the config of a model has beside the settings of the group `model`."""


def read_marian(directory: StrPath, write: Callable[[str], Any] = print) -> Translator:
    """Returns the translator in a directory of Marian's or of Hugging Face's files.

    The files are those of `MarianMTModel` (config.json, generation_config.json, model.safetensors
    or pytorch_model.bin, vocab.json, source.spm, target.spm, tokenizer_config.json), or Marian's
    own (decoder.yml, *.npz, the vocabularies that decoder.yml names, source.spm, target.spm). Only
    local files are read. Its search is the one that the files describe.

    Args:
        directory: path of the directory.
        write: called with a line about each setting of the search that has no counterpart here.
    Returns:
        `Translator`; `import_run` makes a run of it.
    Raises:
        InputError: files that are missing, damaged or do not fit together, or settings that this
            package cannot represent. The message names them.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise InputError(
            f"Expected the directory of a model. Received: {directory}: no such directory."
        )
    check_if_listed(directory)
    if is_named(directory, "config.json"):
        config = Settings.read(directory / "config.json")
        model_type = config.get("model_type")
        if model_type != "marian":
            raise InputError(
                "Expected a model of OPUS-MT, whose model_type is marian. Received: "
                f"{model_type=}, in {directory / 'config.json'}. M2M100, NLLB and other "
                "translators are not supported; convert.from_hugging_face reads GPT-2, BERT and "
                "Vision Transformer."
            )
        return _read(directory, lambda: read_hugging_face(directory, config, write))
    if is_named(directory, "decoder.yml"):
        return _read(directory, lambda: read_npz(directory, write))
    raise InputError(
        "Expected a model of OPUS-MT: Hugging Face's config.json with its files, or Marian's "
        f"decoder.yml with its files. Received: {directory}, without either. "
        + remedy_for(directory, "Name the directory that has them.")
    )


def _read(directory, read):
    """Returns what `read` returns; an error that a damaged file causes is an `InputError`."""
    try:
        return read()
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:  # the files come from anywhere: what is in them can raise anything
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"Expected the files of a model of OPUS-MT. Received: {directory}, in which one is "
            f"damaged or has a value of another type ({type(error).__name__}: {reason}). "
            "Download it again."
        ) from error


def import_run(
    directory: StrPath, output: StrPath, write: Callable[[str], Any] = print
) -> pathlib.Path:
    """Makes a run of a translator of OPUS-MT, whole or not at all.

    The run is like one that was trained here: `load`, `translate`, `export` and `train` with
    `init_from` take it. Only its own training cannot go on.

    Args:
        directory: see `read_marian`.
        output: the directory of the run; new or empty.
        write: called with each line of the report.
    Returns:
        The path of the run.
    Raises:
        InputError: see `read_marian`; or `output` holds something already. Nothing is written.
    """
    check_directory(output, empty=True)
    translator = read_marian(directory, write)
    model, decoding = translator.model, translator.decoding
    write(f"model       {model.count_params():,} parameters")
    sizes = f"{model.source_vocab_size:,} tokens for both languages"
    if model.target_vocab_size is not None:
        sizes = f"{model.source_vocab_size:,} source and {model.target_vocab_size:,} target tokens"
    write(f"vocabulary  {sizes}")
    write(
        f"search      beam size {decoding.beam_size}, length penalty {decoding.length_penalty:g}, "
        f"at most {decoding.max_length} tokens"
    )
    try:
        with new_directory(output, last="config.yaml") as partial:
            _write(translator, Run(partial))
    except FileExistsError:
        check_directory(output, empty=True)  # another import was faster
        raise
    return pathlib.Path(output)


def _write(translator, run):
    model, tokenizers = translator.model, (translator.tokenizer, translator.target_tokenizer)
    identity = Identity(uuid.uuid4().hex, tokenizers=checksum_of_tokenizers(tokenizers))
    run.write_identity(identity)
    checkpoints = Checkpoints(run.path / "checkpoints", identity.run_id)
    checkpoints.save_weights(model, TrainingState(validated=False))
    tokenizer = TokenizerConfig(
        vocab_size=model.output_vocab_size, shared=model.target_vocab_size is None
    )
    settings = model.get_config()
    arguments = {name: settings[name] for name in settings if name not in NO_SETTINGS}
    config = Config(
        tokenizer=tokenizer, model={"name": model.NAME, **arguments}, decoding=translator.decoding
    )
    run.create(config, *tokenizers)
