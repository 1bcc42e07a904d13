"""The presets: settings of models and trainings that are known to work well.

A recipe is a preset that also names its data: it repeats a training described in a paper.
"""

import os
import pathlib

from keras_transformer.config.settings import check_known
from keras_transformer.config.yaml import parse_yaml

HERE = pathlib.Path(__file__).parent
MODEL_PRESETS = {
    "bert": ("bert_base",),
    "gpt": ("gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl"),
    "rnn_seq2seq": ("rnn", "rnn_plain"),
    "transformer": ("tiny", "fast", "base", "big"),
    "vision_transformer": ("vit_b_16",),
}
"""The presets of each model."""

RECIPES = (
    "wmt14-en-de-base",
    "wmt14-en-de-big",
    "wmt14-en-fr-base",
    "wmt14-en-fr-big",
    "iwslt14-de-en",
    "ted-pt-en",
    "multi30k-en-de",
    "multi30k-en-fr",
)
"""The recipes: each is the file `recipes/NAME.yaml` of this package."""

PRESETS = MODEL_PRESETS["transformer"] + MODEL_PRESETS["rnn_seq2seq"] + RECIPES
"""The presets of `keras-transformer train`: a translation model and its training."""


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


def settings_file(path):
    """Returns the path of a settings file: `path`, or that of a recipe of this package.

    If there is no file at `recipes/NAME.yaml`, this path means the recipe NAME.
    """
    path = pathlib.Path(path)
    is_recipe = path.stem in RECIPES and path == _relative_path(path.stem)
    return HERE / path if is_recipe and not os.path.lexists(path) else path


def _relative_path(name):
    return pathlib.Path("recipes" if name in RECIPES else "", f"{name}.yaml")


def _read(name):
    return parse_yaml((HERE / _relative_path(name)).read_bytes())
