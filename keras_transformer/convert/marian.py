"""Translators of OPUS-MT and others that Marian has trained (https://marian-nmt.github.io)."""

import pathlib
from collections.abc import Callable
from typing import Any

from keras_transformer.convert.hugging_face import read_json
from keras_transformer.convert.marian_hugging_face import read_hugging_face
from keras_transformer.convert.marian_npz import read_npz
from keras_transformer.errors import InputError
from keras_transformer.files.version_numbers import remedy_for
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath


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
    if (directory / "config.json").exists():
        config = read_json(directory / "config.json")
        kind = config.get("model_type")
        if kind != "marian":
            raise InputError(
                "Expected a model of OPUS-MT, whose model_type is marian. Received: "
                f"model_type={kind!r}, in {directory / 'config.json'}. M2M100, NLLB and other "
                "translators are not supported; convert.from_hugging_face reads GPT-2, BERT and "
                "Vision Transformer."
            )
        return _read(directory, lambda: read_hugging_face(directory, config, write))
    if (directory / "decoder.yml").exists():
        return _read(directory, lambda: read_npz(directory))
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
