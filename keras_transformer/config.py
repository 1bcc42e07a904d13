"""The settings of a run: small frozen dataclasses, one a group, read from YAML and saved as YAML.

A default lives in one place: the architecture's in the constructor of `Transformer`, whose
arguments are the group `model` (a dict), all others here. The line under a field is its meaning.

>>> config = Config.from_preset("tiny").override(["training.max_steps=100", "model.num_heads=2"])
>>> config.save("config.yaml")
"""

import dataclasses
import inspect
import pathlib
from typing import Literal

from keras_transformer.core_yaml import parse_yaml, to_yaml, yaml_word
from keras_transformer.settings import (
    LARGEST,
    Count,
    CountOrZero,
    Positive,
    PositiveOrZero,
    SettingsGroup,
    Share,
    accepts,
    check_known,
    in_words,
    plain_type,
    settings,
)
from keras_transformer.whole_files import replacing

PRESETS = ("tiny", "base", "big")
STRATEGIES = ("auto", "one", "mirrored", "multi_worker", "tpu")  # of `training.distribution`


@dataclasses.dataclass(frozen=True)
class DataConfig(SettingsGroup):
    """Where the sentence pairs come from, and which are used."""

    GROUP = "data"

    source_train: str | None = None
    """Source sentences to train on: a UTF-8 file, one a line; gzip where its name ends in .gz."""
    target_train: str | None = None
    """Their translations, line by line."""
    source_valid: str | None = None
    """Source sentences to validate on; without them a part of the training pairs is held out."""
    target_valid: str | None = None
    """Their translations, line by line."""
    dataset: str | None = None
    """A TensorFlow data set in place of files, as tfds:ted_hrlr_translate/pt_to_en."""
    max_length: Count = 128
    """Most pieces of a side, the end counted; longer pairs are left out of training."""
    validation_share: Share = 0.01
    """Part of the training pairs held out where there are no validation files."""
    validation_limit: Count = 2000
    """Most pairs held out."""

    @property
    def names_training_text(self):
        return self.source_train is not None or self.dataset is not None

    def __post_init__(self):
        super().__post_init__()
        for source, target in (("source_train", "target_train"), ("source_valid", "target_valid")):
            if (getattr(self, source) is None) != (getattr(self, target) is None):
                raise ValueError(
                    f"Expected {source} and {target} together. Received: "
                    f"{source}={getattr(self, source)}, {target}={getattr(self, target)}. "
                    "Give both files, or neither."
                )
        if self.dataset is not None and self.source_train is not None:
            raise ValueError(
                "Expected training pairs from files or from a data set, not from both. Received: "
                f"source_train={self.source_train}, dataset={self.dataset}. Leave one out."
            )
        if self.dataset is not None and not self.dataset.startswith("tfds:"):
            raise ValueError(
                "Expected tfds: and the name of a TensorFlow data set. "
                f"Received: dataset={self.dataset}. "
                "Write it as tfds:ted_hrlr_translate/pt_to_en."
            )


@dataclasses.dataclass(frozen=True)
class TokenizerConfig(SettingsGroup):
    """How text is split into pieces."""

    GROUP = "tokenizer"

    kind: Literal["sentencepiece", "wordpiece"] = "sentencepiece"
    """Kind of tokenizer that is trained."""
    model_type: Literal["bpe", "unigram"] = "bpe"
    """Kind of SentencePiece model that is trained."""
    vocab_size: Count = 10_000
    """Pieces of a vocabulary, the four special ones counted."""
    shared: bool = True
    """Whether source and target share one vocabulary."""
    model: str | None = None
    """A SentencePiece model or WordPiece vocabulary file to use instead of training one."""
    sampling: Share = 0.0
    """Subword sampling in training (alpha of unigram, dropout of BPE); 0 is off."""

    def __post_init__(self):
        super().__post_init__()
        if self.model is not None and not self.shared:
            raise ValueError(
                "Expected one vocabulary for both languages with a tokenizer file of your own. "
                f"Received: shared=false, model={self.model}. Leave one of them out."
            )
        if self.kind == "wordpiece" and self.sampling:
            raise ValueError(
                "Expected no subword sampling with WordPiece, which has none. "
                f"Received: kind={self.kind}, sampling={self.sampling}. "
                "Set sampling to 0, or kind to sentencepiece."
            )
        if self.sampling and (self.model or "").endswith(".txt"):
            raise ValueError(
                "Expected no subword sampling with a WordPiece vocabulary, which has none. "
                f"Received: model={self.model}, sampling={self.sampling}. Set sampling to 0."
            )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(SettingsGroup):
    """How the model is trained."""

    GROUP = "training"

    batch_tokens: Count = 4096
    """Tokens a step of all devices together, padding counted: sentences times the longest side."""
    max_steps: Count = 100_000
    """Most optimizer steps."""
    max_minutes: Positive | None = None
    """Most minutes of training; null is no limit."""
    schedule: Literal["paper", "inverse_square_root"] = "paper"
    """Learning rate: the paper's, which follows from the model's width, or one of a given peak."""
    peak_learning_rate: Positive = 0.005
    """Highest learning rate of the schedule inverse_square_root."""
    warmup_steps: Count = 4000
    """Steps in which the learning rate rises."""
    label_smoothing: Share = 0.1
    """Probability that the loss spreads over all pieces."""
    clip_norm: Positive | None = None
    """Largest norm of the whole gradient; null is no limit."""
    checkpoint_every: Count = 1000
    """Steps from one validation and checkpoint to the next."""
    keep_checkpoints: Count = 10
    """Last checkpoints kept. At the end their mean is used where validation finds it better."""
    patience: CountOrZero = 10
    """Validations without a better BLEU after which training stops; 0 is never."""
    seed: CountOrZero = 1
    """Seed of weights, shuffling, dropout and held-out pairs."""
    deterministic: bool = False
    """Makes two runs on one CPU equal to the bit, killed in between or not; slower."""
    gradient_accumulation_steps: Count = 1
    """Parts in which a device takes its share of a step, one after the other, to save memory."""
    mixed_precision: Literal["mixed_bfloat16", "mixed_float16"] | None = None
    """Keras policy of the numbers inside the model; null is float32."""
    jit_compile: bool | None = None
    """Whether XLA compiles each step, once for each shape; null: where Keras finds it pays."""
    static_shapes: bool = False
    """Whether batches come in a few fixed shapes, for XLA and TPU."""


@dataclasses.dataclass(frozen=True)
class DecodingConfig(SettingsGroup):
    """How a translation is searched."""

    GROUP = "decoding"

    beam_size: Count = 4
    """Hypotheses of the beam search; 1 is greedy search."""
    length_penalty: PositiveOrZero = 0.6
    """Exponent alpha of the length normalization ((5 + length) / 6)^alpha; 0 is none."""
    max_length: Count = 256
    """Most pieces of a translation, the end counted."""
    max_source_length: Count = 256
    """Most pieces of an input; a longer one is cut, and flagged."""


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run.

    Attributes:
        data, tokenizer, training, decoding: the dataclasses above.
        model: dict of arguments of `Transformer`, the vocabulary sizes excepted: these come from
            the tokenizer.
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
            _check_model(self.model)
        if self.model.get("positions") == "learned":
            _check_learned_positions(self)

    @classmethod
    def from_preset(cls, name):
        """Returns the settings of "tiny", "base" or "big"."""
        check_known(name, PRESETS, "a preset")
        return cls.load(pathlib.Path(__file__).parent / "presets" / f"{name}.yaml")

    @classmethod
    def load(cls, path, base=None):
        """Returns the settings in a YAML file, in place of those of `base` (None: the defaults)."""
        try:
            content = pathlib.Path(path).read_bytes()
        except OSError as error:
            raise ValueError(
                f"Expected a readable configuration file. Received: {path}: {error.strerror}."
            ) from None
        try:
            values = parse_yaml(content)
            return (base or cls()).merged({} if values is None else values)
        except ValueError as error:
            raise ValueError(f"{error} (file: {path})") from None

    def save(self, path):
        """Writes all settings to a YAML file, whole or not at all."""
        with replacing(path) as partial:
            partial.write_text(to_yaml(dataclasses.asdict(self)), encoding="utf-8")

    def merged(self, values):
        """Returns these settings with others in their place: a dict from group to dict."""
        if not isinstance(values, dict):
            raise ValueError(
                f"Expected groups of settings: {', '.join(GROUPS)}. Received: {values!r}. "
                "Write a group's name, a colon, and its keys and values indented below."
            )
        changed = {}
        for group, new in values.items():
            check_known(group, GROUPS, "a group of settings")
            new = {} if new is None else new
            if not isinstance(new, dict):
                raise ValueError(
                    f"Expected keys and values in the group {group}. Received: {group}={new!r}. "
                    f"Write them as {group}: {{key: value}}."
                )
            current = getattr(self, group)
            if group == "model":
                changed[group] = {**current, **new}
            else:
                for key in new:
                    check_known(key, settings(GROUPS[group]), f"a setting of the group {group}")
                changed[group] = dataclasses.replace(current, **new)
        return dataclasses.replace(self, **changed)

    def override(self, assignments):
        """Returns these settings with changes such as `["training.max_steps=100"]`.

        A value is read as YAML; where the setting is text, it is taken as it stands, null excepted.
        """
        values = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            group, dot, key = name.strip().partition(".")
            if not (equals and dot and key):
                raise ValueError(
                    f"Expected group.key=value. Received: {assignment}. "
                    "Write it as training.max_steps=100."
                )
            values.setdefault(group, {})[key] = _parse_value(group, key, text)
        return self.merged(values)


@dataclasses.dataclass(frozen=True)
class ConfigBeforeKeras(Config):
    """The same settings, of which those of the model are not checked: for that Keras must load."""

    def __post_init__(self):
        pass


GROUPS = {field.name: field.type for field in dataclasses.fields(Config)}


def _parse_value(group, key, text):
    fields = {} if group == "model" or group not in GROUPS else settings(GROUPS[group])
    if key in fields and plain_type(fields[key].annotation) is str:
        return None if text in ("null", "") else text
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise ValueError(
            f"Expected a YAML value. Received: {group}.{key}={text}: {error}"
        ) from None


def _check_model(model):
    """Refuses unknown arguments and wrong types; the constructor itself checks the ranges."""
    from keras_transformer.layers.attention.by_name import attention_by_name
    from keras_transformer.models import Transformer

    known = {
        parameter.name: parameter.default
        for parameter in inspect.signature(Transformer.__init__).parameters.values()
        if parameter.default is not parameter.empty and parameter.name != "target_vocab_size"
    }
    for name, value in model.items():
        check_known(name, known, "an argument of the model")
        default = known[name]
        if name in ("attention", "cross_attention"):
            attention_by_name(value)
            numbers = value if isinstance(value, dict) else {}
            for argument, number in numbers.items():
                _check_size(f"{name}.{argument}", number)
            continue
        kind = int | None if default is None else type(default)
        if not accepts(kind, value):
            raise ValueError(
                f"Expected {name} to be {in_words(kind)}. "
                f"Received: model.{name}={value!r}. The default is {yaml_word(default)}."
            )
        _check_size(name, value)


def _check_size(name, value):
    if accepts(int, value) and abs(value) > LARGEST:
        raise ValueError(
            f"Expected {name} to be at most {LARGEST}. Received: model.{name}={value}."
        )


def _check_learned_positions(config):
    """Refuses lengths that the table of positions lacks."""
    from keras_transformer.models import Transformer

    default = inspect.signature(Transformer.__init__).parameters["max_length"].default
    limit = config.model.get("max_length", default)
    for name, length in (
        ("data.max_length", config.data.max_length),
        ("decoding.max_length", config.decoding.max_length),
        ("decoding.max_source_length", config.decoding.max_source_length),
    ):
        if length > limit:
            raise ValueError(
                f"Expected {name} within the learned positions. Received: {name}={length}, "
                f"model.max_length={limit}. Lower it, raise model.max_length, or take sinusoids."
            )
