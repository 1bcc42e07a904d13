"""The settings of a run: one small frozen dataclass per group, read from YAML and saved as YAML.

Each default is defined once: those of the model in the constructor of its class, whose arguments
are the group `model` (a dict), and all others in `groups.py`.

>>> config = Config.from_preset("tiny").override(["training.max_steps=100", "model.num_heads=2"])
>>> config.save("config.yaml")
"""

import dataclasses
import pathlib
from collections.abc import Iterable
from typing import Any

from keras_transformer.config.groups import (
    DataConfig,
    DecodingConfig,
    TokenizerConfig,
    TrainingConfig,
)
from keras_transformer.config.presets import RECIPES, read_preset, settings_file
from keras_transformer.config.settings import check_known, plain_type, settings
from keras_transformer.config.yaml import MAX_CHARACTERS, parse_yaml, to_yaml
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.types import Self, StrPath

OF_TEXT = (
    ("tokenizer", "sampling"),
    ("training", "distill_from"),
    ("training", "guided_alignment"),
)
"""The settings that need all of the training text."""


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run.

    Attributes:
        data, tokenizer, training, decoding: the dataclasses of `groups.py`.
        model: dict with the `name` of the model in `MODELS` ("transformer" if there is none) and
            arguments of its class, except the vocabulary sizes, which come from the tokenizer.
    Raises:
        ValueError: unknown key, value of the wrong type or outside its range.
    """

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: dict = dataclasses.field(default_factory=dict)
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    def __post_init__(self):
        if self.training.distill_from and self.tokenizer.sampling:
            raise InputError(
                "Expected no subword sampling with distill_from, because its runs predict the "
                "labels of one tokenization. Received: "
                f"tokenizer.sampling={self.tokenizer.sampling}, "
                f"training.distill_from={self.training.distill_from}. Leave one of them out."
            )
        if self.data.prepared is not None:
            for group, name in OF_TEXT:
                if value := getattr(getattr(self, group), name):
                    raise InputError(
                        f"Expected no {group}.{name} with prepared text, which is tokenized once, "
                        f"and of which one shard is read at a time. Received: {name}={value}, "
                        f"prepared={self.data.prepared}. Leave one of them out."
                    )

    @property
    def model_arguments(self) -> dict[str, Any]:
        """The arguments for the constructor of the model's class, without vocabulary sizes."""
        return {key: value for key, value in self.model.items() if key != "name"}

    @classmethod
    def from_preset(cls, name: str) -> Self:
        """Returns the settings of a preset, such as "tiny", "fast" or a recipe's name."""
        return cls().merged(read_preset(name))

    @classmethod
    def load(cls, path: StrPath, base: "Config | None" = None) -> "Config":
        """Returns `base` (None: the defaults) with the settings in a YAML file.

        `recipes/NAME.yaml` also finds a recipe of this package, if there is no such file.
        """
        try:
            with settings_file(path).open("rb") as file:
                content = file.read(MAX_CHARACTERS + 1)
        except OSError as error:
            message = f"Expected a readable configuration file. Received: {path}: {error.strerror}."
            if pathlib.Path(path).parent == pathlib.Path("recipes"):
                known = ", ".join(f"recipes/{name}.yaml" for name in RECIPES)
                message = f"{message} This package has {known}."
            raise InputError(message) from None
        try:
            values = parse_yaml(content)
            return (base or cls()).merged({} if values is None else values)
        except ValueError as error:
            raise InputError(f"{error} (file: {path})") from None

    def save(self, path: StrPath) -> None:
        """Writes all settings to a YAML file, atomically."""
        with replacing(path) as partial:
            partial.write_text(to_yaml(dataclasses.asdict(self)), encoding="utf-8")

    def merged(self, values: dict[str, Any]) -> Self:
        """Returns these settings with changes: `values` is a dict from group to dict."""
        if not isinstance(values, dict):
            raise InputError(
                f"Expected groups of settings: {', '.join(GROUPS)}. Received: {values!r}. "
                "Write a group's name, a colon, and its keys and values indented below."
            )
        changed: dict[str, Any] = {}
        for group, new in values.items():
            check_known(group, GROUPS, "a group of settings")
            new = {} if new is None else new
            if not isinstance(new, dict):
                raise InputError(
                    f"Expected keys and values in the group {group}. Received: {group}={new!r}. "
                    f"Write them as {group}: {{key: value}}."
                )
            current = getattr(self, group)
            if group == "model":
                # the arguments of another model do not apply to this one
                is_same = model_name({**current, **new}) == model_name(current)
                changed[group] = {**current, **new} if is_same else new
            else:
                for key in new:
                    check_known(key, settings(GROUPS[group]), f"a setting of the group {group}")
                changed[group] = dataclasses.replace(current, **new)
        return dataclasses.replace(self, **changed)

    def override(self, assignments: Iterable[str]) -> Self:
        """Returns these settings with changes such as `["training.max_steps=100"]`.

        A value is read as YAML. The value of a text setting is taken literally, except for null.
        """
        values: dict[str, dict[str, Any]] = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            group, dot, key = name.strip().partition(".")
            if not (equals and dot and key):
                raise InputError(
                    f"Expected group.key=value. Received: {assignment}. "
                    "Write it as training.max_steps=100."
                )
            values.setdefault(group, {})[key] = _parse_value(group, key, text)
        return self.merged(values)


GROUPS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Config)}


def _parse_value(group, key, text):
    fields = {} if group == "model" or group not in GROUPS else settings(GROUPS[group])
    if key in fields and plain_type(fields[key].annotation) is str:
        return None if text in ("null", "") else text
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise InputError(
            f"Expected a YAML value. Received: {group}.{key}={text}: {error}"
        ) from None


def model_name(model: dict[str, Any]) -> str:
    """Returns the name of the model that a group `model` describes."""
    return model.get("name", "transformer")
