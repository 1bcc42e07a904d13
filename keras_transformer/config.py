"""The settings of a run: one small frozen dataclass per group, read from YAML and saved as YAML.

A default lives in one place: those of the model in the constructor of its class, whose arguments
are the group `model` (a dict), all others here. The line under a field is its meaning.

>>> config = Config.from_preset("tiny").override(["training.max_steps=100", "model.num_heads=2"])
>>> config.save("config.yaml")
"""

import dataclasses
import inspect
import pathlib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from keras_transformer.atomic_files import replacing
from keras_transformer.core_yaml import parse_yaml, to_yaml, yaml_word
from keras_transformer.errors import InputError
from keras_transformer.presets import RECIPES, read_preset, settings_file
from keras_transformer.settings import (
    LARGEST,
    Count,
    CountOrZero,
    Positive,
    PositiveOrZero,
    Range,
    SettingsGroup,
    Share,
    ShareOrAll,
    accepts,
    check_known,
    in_words,
    plain_type,
    settings,
)
from keras_transformer.types import Self, StrPath

MOST_TRANSLATIONS = 200
"""Translations of each source token in a lexicon."""

Translations = Annotated[
    int,
    Range(
        f"a whole number from 0 to {MOST_TRANSLATIONS}",
        lambda number: 0 <= number <= MOST_TRANSLATIONS,
    ),
]
STRATEGIES = ("auto", "one", "mirrored", "multi_worker", "tpu")  # of `training.distribution`


@dataclasses.dataclass(frozen=True)
class DataConfig(SettingsGroup):
    """Where the sentence pairs come from, and which of them are used."""

    GROUP = "data"

    source_train: str | None = None
    """Source sentences for training: a UTF-8 file, one per line; a name in .gz means gzip."""
    target_train: str | None = None
    """Their translations, in the same order."""
    source_valid: str | None = None
    """Source sentences for validation; null: those of the data set, or else some training pairs."""
    target_valid: str | None = None
    """Their translations, in the same order."""
    dataset: str | None = None
    """A TensorFlow data set instead of files, such as tfds:ted_hrlr_translate/pt_to_en."""
    max_length: Count = 128
    """Maximum tokens per sentence, including the end token; longer pairs are left out."""
    validation_share: Share = 0.01
    """Share of the training pairs that is held out if there is no other text for validation."""
    validation_limit: Count = 2000
    """Maximum number of pairs that are held out."""

    @property
    def names_training_text(self) -> bool:
        return self.source_train is not None or self.dataset is not None

    def __post_init__(self):
        super().__post_init__()
        for source, target in (("source_train", "target_train"), ("source_valid", "target_valid")):
            if (getattr(self, source) is None) != (getattr(self, target) is None):
                raise InputError(
                    f"Expected {source} and {target} together. Received: "
                    f"{source}={getattr(self, source)}, {target}={getattr(self, target)}. "
                    "Give both files, or neither."
                )
        if self.dataset is not None and self.source_train is not None:
            raise InputError(
                "Expected training pairs from files or from a data set, not from both. Received: "
                f"source_train={self.source_train}, dataset={self.dataset}. Leave one out."
            )
        if self.dataset is not None and not self.dataset.startswith("tfds:"):
            raise InputError(
                "Expected tfds: and the name of a TensorFlow data set. "
                f"Received: dataset={self.dataset}. "
                "Write it as tfds:ted_hrlr_translate/pt_to_en."
            )


@dataclasses.dataclass(frozen=True)
class TokenizerConfig(SettingsGroup):
    """How text is split into tokens."""

    GROUP = "tokenizer"

    kind: Literal["sentencepiece", "wordpiece"] = "sentencepiece"
    """Kind of tokenizer to train."""
    model_type: Literal["bpe", "unigram"] = "bpe"
    """Kind of SentencePiece model to train."""
    vocab_size: Count = 10_000
    """Number of tokens in a vocabulary, including the four special tokens."""
    shared: bool = True
    """Whether source and target share one vocabulary."""
    model: str | None = None
    """A SentencePiece model or WordPiece vocabulary file, used instead of training one."""
    sampling: Share = 0.0
    """Subword sampling: share of merges that BPE skips, or alpha of unigram; 0 switches it off."""
    user_symbols: str | None = None
    """Words, separated by spaces, that always stay one token, such as tags of languages."""

    def __post_init__(self):
        super().__post_init__()
        if self.model is not None and not self.shared:
            raise InputError(
                "Expected one vocabulary for both languages with a tokenizer file of your own. "
                f"Received: shared=false, model={self.model}. Leave one of them out."
            )
        if self.kind == "wordpiece" and self.sampling:
            raise InputError(
                "Expected no subword sampling with WordPiece, which has none. "
                f"Received: kind={self.kind}, sampling={self.sampling}. "
                "Set sampling to 0, or kind to sentencepiece."
            )
        if self.user_symbols and (self.kind == "wordpiece" or self.model is not None):
            raise InputError(
                "Expected user symbols only where a SentencePiece model is trained. Received: "
                f"user_symbols={self.user_symbols}, kind={self.kind}, model={self.model}. "
                "Leave them out, or train a SentencePiece model."
            )
        if self.sampling and (self.model or "").endswith(".txt"):
            raise InputError(
                "Expected no subword sampling with a WordPiece vocabulary, which has none. "
                f"Received: model={self.model}, sampling={self.sampling}. Set sampling to 0."
            )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(SettingsGroup):
    """How the model is trained."""

    GROUP = "training"

    batch_tokens: Count = 4096
    """Maximum tokens per step on all devices, with padding: sentences times the longest length."""
    max_steps: Count = 100_000
    """Maximum number of optimizer steps."""
    max_minutes: Positive | None = None
    """Maximum minutes of training; null means no limit."""
    schedule: Literal["noam", "inverse_square_root", "linear", "cosine"] = "noam"
    """Learning rate schedule; noam is the paper's, linear and cosine fall to zero at the end."""
    peak_learning_rate: Positive = 0.005
    """Highest learning rate of the schedules except noam."""
    warmup_steps: Count = 4000
    """Number of steps in which the learning rate rises."""
    label_smoothing: Share = 0.1
    """Probability that the loss spreads evenly over all tokens of the vocabulary."""
    r_drop: PositiveOrZero = 0.0
    """R-Drop's alpha: weight of the divergence between two predictions of each batch; 0: off."""
    distill_from: str | None = None
    """Runs, separated by spaces, whose mean prediction replaces labels; null means none."""
    distill_share: ShareOrAll = 0.5
    """Share of the labels that are drawn from the prediction of the runs in distill_from."""
    clip_norm: Positive | None = None
    """Maximum norm of the gradient of all weights together; null means no limit."""
    ema: Share | None = None
    """Decay of a moving average of the weights, such as 0.999, used in their place; null: none."""
    checkpoint_every: Count = 1000
    """Number of steps between two checkpoints, each with a validation."""
    keep_checkpoints: Count = 10
    """Number of last checkpoints to keep. At the end, validation chooses one or a mean of some."""
    patience: CountOrZero = 10
    """Stop after this number of validations without a better score (BLEU); 0 means never."""
    bleu_tokenizer: str = "13a"
    """sacreBLEU's tokenizer for the BLEU of validations: 13a, none, intl, char, zh and others."""
    samples: CountOrZero = 0
    """Number of validation sentences whose translations each validation shows."""
    seed: CountOrZero = 1
    """Seed of the initial weights, shuffling, dropout and held-out pairs."""
    deterministic: bool = False
    """Makes two runs on one CPU bit-identical, even if one is interrupted; slower."""
    gradient_accumulation_steps: Count = 1
    """Number of micro-batches per step on each device, to save memory."""
    mixed_precision: Literal["mixed_bfloat16", "mixed_float16"] | None = None
    """Keras dtype policy of the model; null means float32."""
    jit_compile: bool | None = None
    """Whether XLA compiles the step, once for each shape; null lets Keras decide."""
    static_shapes: bool = False
    """Whether batches have a few fixed shapes, for XLA and TPUs."""

    def __post_init__(self):
        if self.schedule == "paper":  # the name of noam in earlier versions
            object.__setattr__(self, "schedule", "noam")
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class DecodingConfig(SettingsGroup):
    """How the search for a translation works."""

    GROUP = "decoding"

    beam_size: Count = 4
    """Number of hypotheses in the beam search; 1 means greedy search."""
    length_penalty: PositiveOrZero = 0.6
    """Exponent alpha of the length normalization; 0 means none."""
    length_normalization: Literal["gnmt", "length"] = "gnmt"
    """Form of the length normalization: ((5 + length) / 6)^alpha, or Marian's length^alpha."""
    max_length: Count = 256
    """Maximum tokens of a translation, including the end token."""
    max_source_length: Count = 256
    """Maximum tokens of an input; a longer one is truncated and flagged."""
    shortlist: Translations = 0
    """Number of likely translations of each source token to choose from; 0 means all tokens."""
    keep_beam_full: bool = False
    """Whether the next best hypothesis takes the place in the beam of one that has ended."""


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run.

    Attributes:
        data, tokenizer, training, decoding: the dataclasses above.
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
        if self.model:
            _check_model(self)
        if self.model.get("positions") == "learned":
            _check_learned_positions(self)
        if self.training.distill_from and self.tokenizer.sampling:
            raise InputError(
                "Expected no subword sampling with distill_from, whose runs predict the labels of "
                "one tokenization. Received: "
                f"tokenizer.sampling={self.tokenizer.sampling}, "
                f"training.distill_from={self.training.distill_from}. Leave one of them out."
            )

    @property
    def model_class(self) -> Any:
        """The class in `MODELS` that the group `model` names."""
        from keras_transformer.models import MODELS

        return MODELS[model_name(self.model)]

    @property
    def model_arguments(self) -> dict[str, Any]:
        """The arguments for the constructor of `model_class`, without vocabulary sizes."""
        return {key: value for key, value in self.model.items() if key != "name"}

    @classmethod
    def from_preset(cls, name: str) -> Self:
        """Returns the settings of a preset: "tiny", "base", "big", "rnn", or a recipe's name."""
        return cls().merged(read_preset(name))

    @classmethod
    def load(cls, path: StrPath, base: "Config | None" = None) -> "Config":
        """Returns `base` (None: the defaults) with the settings in a YAML file.

        `recipes/NAME.yaml` names a recipe of this package where no such file stands.
        """
        try:
            content = settings_file(path).read_bytes()
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
        """Writes all settings to a YAML file, whole or not at all."""
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
                # the arguments of one model mean nothing to another
                is_same = model_name({**current, **new}) == model_name(current)
                changed[group] = {**current, **new} if is_same else new
            else:
                for key in new:
                    check_known(key, settings(GROUPS[group]), f"a setting of the group {group}")
                changed[group] = dataclasses.replace(current, **new)
        return dataclasses.replace(self, **changed)

    def override(self, assignments: Iterable[str]) -> Self:
        """Returns these settings with changes such as `["training.max_steps=100"]`.

        A value is read as YAML, except for a setting that is text: that is taken literally, except
        for null.
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


@dataclasses.dataclass(frozen=True)
class ConfigBeforeKeras(Config):
    """The same settings without a check of the group `model`, for which Keras must be imported."""

    def __post_init__(self):
        pass


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


def _check_model(config):
    """Refuses unknown arguments and wrong types; the constructor itself checks the ranges."""
    from keras_transformer.layers.attention.by_name import attention_by_name
    from keras_transformer.models import MODELS

    check_known(model_name(config.model), list(MODELS), "the name of a model")
    parameters = _model_parameters(config.model_class)
    for name, value in config.model_arguments.items():
        check_known(name, parameters, "an argument of the model")
        default, kind = parameters[name].default, parameters[name].annotation
        if name in config.model_class.ATTENTION_SETTINGS:
            attention_by_name(value)
            numbers = value if isinstance(value, dict) else {}
            for argument, number in numbers.items():
                _check_size(f"{name}.{argument}", number)
            continue
        if kind is inspect.Parameter.empty:
            kind = int | None if default is None else type(default)
        if not accepts(kind, value):
            raise InputError(
                f"Expected {name} to be {in_words(kind)}. "
                f"Received: model.{name}={value!r}. The default is {yaml_word(default)}."
            )
        _check_size(name, value)


def _model_parameters(model_class):
    """Returns the arguments of a model's class that are settings: dict from name to parameter."""
    return {
        parameter.name: parameter
        for parameter in inspect.signature(model_class.__init__).parameters.values()
        if parameter.default is not parameter.empty and not parameter.name.endswith("vocab_size")
    }


def _check_size(name, value):
    if accepts(int, value) and abs(value) > LARGEST:
        raise InputError(
            f"Expected {name} to be at most {LARGEST}. Received: model.{name}={value}."
        )


def _check_learned_positions(config):
    """Refuses lengths above that of the table of positions."""
    limit = config.model.get(
        "max_length", _model_parameters(config.model_class)["max_length"].default
    )
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
