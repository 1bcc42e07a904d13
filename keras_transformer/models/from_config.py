"""The model that the settings of a run describe."""

import inspect
from typing import Any

from keras_transformer.config import Config, model_name
from keras_transformer.config.settings import LARGEST, accepts, check_known, in_words
from keras_transformer.config.yaml import yaml_word
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.attention.from_config import attention_from_config
from keras_transformer.layers.nested import nested_layers
from keras_transformer.layers.rematerialization import Rematerialized
from keras_transformer.models.rnn_seq2seq import RnnSeq2Seq
from keras_transformer.models.transformer import Transformer

MODELS: dict[str, Any] = {model.NAME: model for model in (RnnSeq2Seq, Transformer)}
"""The models that `keras-transformer train` can train, by their name in the config."""


def model_class_of(config: Config) -> Any:
    """Returns the class in `MODELS` that the group `model` names."""
    check_known(model_name(config.model), list(MODELS), "the name of a model")
    return MODELS[model_name(config.model)]


def check_model_settings(config: Config) -> None:
    """Refuses unknown arguments and wrong types; the constructor itself checks the ranges.

    Raises:
        ValueError: the group `model` describes no model, or learned positions are too few for the
            lengths of the other groups.
    """
    model_class = model_class_of(config)
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(model_class.__init__).parameters.items()
        if parameter.default is not parameter.empty and not name.endswith("vocab_size")
    }
    for name, value in config.model_arguments.items():
        check_known(name, parameters, "an argument of the model")
        default, expected = parameters[name].default, parameters[name].annotation
        if name in model_class.ATTENTION_SETTINGS:
            if value is not None or default is not None:
                attention_from_config(value)
            for argument, number in value.items() if isinstance(value, dict) else ():
                _check_size(f"{name}.{argument}", number)
            continue
        if expected is inspect.Parameter.empty:
            expected = int | None if default is None else type(default)
        if not accepts(expected, value):
            raise InputError(
                f"Expected {name} to be {in_words(expected)}. "
                f"Received: model.{name}={value!r}. The default is {yaml_word(default)}."
            )
        _check_size(name, value)
    if config.model.get("positions") == "learned":
        _check_learned_positions(config, parameters["max_length"].default)


def check_model(config: Config) -> None:
    """Raises `InputError` if there can be no model with these settings; quick for any size."""
    check_model_settings(config)
    model_class, arguments = model_class_of(config), config.model_arguments
    names = "num_layers", "num_decoder_layers"
    numbers = {name: arguments[name] for name in names if name in arguments}
    check_positive_integers(optional=names[1:], **numbers)
    model = model_class(1, **{**arguments, **dict.fromkeys(names, 1)})  # checks the rest
    if config.training.rematerialize and not any(
        isinstance(layer, Rematerialized) for layer in nested_layers(model)
    ):
        raise InputError(
            "Expected a model of blocks, whose activations are computed again. Received: "
            f"training.rematerialize=true, model.name={model_class.NAME}. Leave it out, or raise "
            "training.gradient_accumulation_steps."
        )
    if config.training.guided_alignment is not None and not model.can_be_guided:
        raise InputError(
            "Expected a Transformer with dense attention to the source, of which a head is trained "
            f"to align. Received: training.guided_alignment={config.training.guided_alignment}, "
            f"model.name={model_class.NAME}, "
            f"model.cross_attention={arguments.get('cross_attention')}. Leave one of them out."
        )


def _check_size(name, value):
    if accepts(int, value) and abs(value) > LARGEST:
        raise InputError(
            f"Expected {name} to be at most {LARGEST}. Received: model.{name}={value}."
        )


def _check_learned_positions(config, default):
    """Refuses lengths above that of the table of positions."""
    limit = config.model.get("max_length", default)
    for name, length in (
        ("data.max_length", config.data.max_length),
        ("decoding.max_length", config.decoding.max_length),
        ("decoding.max_source_length", config.decoding.max_source_length),
    ):
        if length > limit:
            raise InputError(
                f"Expected {name} within the learned positions. Received: {name}={length}, "
                f"model.max_length={limit}. Lower it, raise model.max_length, or choose "
                "sinusoidal positions."
            )
