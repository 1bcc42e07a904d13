"""Models that Hugging Face's `transformers` has saved, as models of this package.

Each architecture has a file in this directory with a function `model_from(config, tensors)`. It
takes the `Settings` of config.json and a dict from names to float32 arrays, and returns a built
model. It raises `InputError` for settings without a counterpart in that model, and for tensors that
are missing, left over (such as those of masked image modelling) or of another shape.
"""

import pathlib
from typing import Any, NamedTuple

from keras_transformer.convert import bert, gpt2, vit
from keras_transformer.convert.tensor_files import read_tensors
from keras_transformer.convert.tokenizer_files import read_tokenizer
from keras_transformer.convert.weights import Settings
from keras_transformer.errors import InputError
from keras_transformer.files.checksums import check_if_listed
from keras_transformer.types import StrPath

ARCHITECTURES = {"bert": bert, "gpt2": gpt2, "vit": vit}
"""The file of each architecture, by the `model_type` in config.json."""


class Imported(NamedTuple):
    """What `from_hugging_face` returns."""

    model: Any
    """A built Keras model with the weights of the files, such as `models.Gpt`."""
    tokenizer: Any
    """A `tokenizers.Tokenizer` with the ids of the files; None if the directory has none."""


def from_hugging_face(directory: StrPath) -> Imported:
    """Returns the model and the tokenizer in a directory that `save_pretrained` has written.

    It reads local files only: config.json, *.safetensors (one file, or several with
    model.safetensors.index.json) and, if they are there, tokenizer.json or vocab.txt (or
    GPT-2's vocab.json and merges.txt), tokenizer_config.json, added_tokens.json and
    special_tokens_map.json. It needs the libraries that `pip install safetensors tokenizers`
    installs.

    Args:
        directory: path of the directory.
    Returns:
        `Imported`. The model computes in float32, whatever the dtype of the file. Keras's `export`
        needs a model that was called once, or an `input_signature`.
    Raises:
        InputError: files that are missing or damaged, or settings, tensors or a tokenizer that this
            package cannot represent. The message names them.
    """
    directory = pathlib.Path(directory)
    check_if_listed(directory)
    config = Settings.read(directory / "config.json")
    model_type = config.get("model_type")
    if model_type == "marian":
        raise InputError(
            "Expected a model without two languages. Received: model_type='marian', a translator. "
            "Make a run of it: keras-transformer import DIR --output RUN, or convert.import_run."
        )
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise InputError(
            f"Expected a model_type that can be converted: {', '.join(sorted(ARCHITECTURES))}. "
            f"Received: {model_type=}, in {directory / 'config.json'}."
        )
    architecture, tensors = ARCHITECTURES[model_type], read_tensors(directory)
    tokenizer = read_tokenizer(directory)
    if tokenizer is not None and "vocab_size" in config:  # images have no tokens
        highest = max(tokenizer.get_vocab().values(), default=0)
        if highest >= config.size("vocab_size"):
            raise InputError(
                "Expected an embedding for each token of the tokenizer, whose highest id is "
                f"{highest}. Received: vocab_size={config['vocab_size']} in config.json. Copy the "
                "tokenizer that belongs to the model, or move it away to load the model alone."
            )
        if model_type == "gpt2":  # rows of no token, which `generate` must not choose
            end_id = config.get("eos_token_id")
            if type(end_id) is int and highest < end_id < config["vocab_size"]:
                raise InputError(
                    "Expected a token that ends a text: eos_token_id of config.json, in the "
                    f"tokenizer. Received: eos_token_id={end_id}, and a tokenizer whose highest id "
                    f"is {highest}. Copy the tokenizer that belongs to the model."
                )
            config["vocab_size"] = highest + 1
            tensors = {
                name: tensor[: highest + 1] if name.endswith(gpt2.TABLES) else tensor
                for name, tensor in tensors.items()
            }
    return Imported(architecture.model_from(config, tensors), tokenizer)
