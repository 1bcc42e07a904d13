"""Makes an ordinary run of a model that another program has trained."""

import contextlib
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

from keras_transformer.config import Config, TokenizerConfig
from keras_transformer.convert.marian import read_marian
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import partial_directory, put_in_place
from keras_transformer.files.text import check_directory
from keras_transformer.runs.checkpoints import Checkpoints, TrainingState
from keras_transformer.runs.run import Identity, Run, checksum_of_tokenizers
from keras_transformer.types import StrPath

NO_SETTINGS = ("name", "trainable", "dtype", "source_vocab_size", "target_vocab_size")
"""What the config of a model has beside the settings of the group `model`."""


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
    given, output = output, pathlib.Path(output).resolve()  # where a link leads to
    check_directory(output)
    if output.exists() and any(output.iterdir()):
        raise _not_empty(given)
    translator = read_marian(directory, write)
    model, decoding = translator.model, translator.decoding
    write(f"model       {model.count_params():,} parameters")
    write(f"vocabulary  {_vocabulary_in_words(model)}")
    write(
        f"search      beam size {decoding.beam_size}, length penalty {decoding.length_penalty:g}, "
        f"at most {decoding.max_length} tokens"
    )
    with partial_directory(output.parent) as partial:
        _write(translator, Run(partial))
        try:
            with contextlib.suppress(FileNotFoundError):
                output.rmdir()  # empty
            put_in_place(partial, output)
        except OSError:
            if output.exists() and any(output.iterdir()):  # another import was faster
                raise _not_empty(given) from None
            raise
    return pathlib.Path(given)


def _not_empty(output):
    return InputError(
        f"Expected a new or empty directory for the run. Received: {output}, which holds files. "
        "Choose another directory."
    )


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
        tokenizer=tokenizer,
        model={"name": model.NAME, **arguments},
        decoding=translator.decoding,
    )
    run.create(config, *tokenizers)


def _vocabulary_in_words(model):
    if model.target_vocab_size is None:
        return f"{model.source_vocab_size:,} tokens for both languages"
    return f"{model.source_vocab_size:,} source and {model.target_vocab_size:,} target tokens"
