"""The presets: settings of models and trainings that are known to work well."""

import pathlib

from keras_transformer.core_yaml import parse_yaml
from keras_transformer.settings import check_known

MODEL_PRESETS = {
    "bert": ("bert_base",),
    "gpt": ("gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl"),
    "rnn_seq2seq": ("rnn", "rnn_plain"),
    "transformer": ("tiny", "base", "big"),
    "vision_transformer": ("vit_b_16",),
}
"""From the name of a model to its presets."""

PRESETS = MODEL_PRESETS["transformer"] + MODEL_PRESETS["rnn_seq2seq"]
"""The presets of `keras-transformer train`: a model that translates, and its training."""


def read_preset(name):
    """Returns the settings of a preset of `PRESETS`: dict from group to dict.

    Raises:
        ValueError: unknown name.
    """
    check_known(name, PRESETS, "a preset")
    return _read(name)


def model_preset(name, model_name):
    """Returns the arguments of a model's class in one of its presets.

    Raises:
        ValueError: unknown name, or a preset of another model.
    """
    check_known(name, MODEL_PRESETS[model_name], f"a preset of the model {model_name}")
    arguments = _read(name)["model"]
    arguments.pop("name", None)
    return arguments


def _read(name):
    return parse_yaml((pathlib.Path(__file__).parent / f"{name}.yaml").read_bytes())
