"""The groups of settings of a run; the line under a field is its meaning."""

import dataclasses
from typing import Annotated, Literal

from keras_transformer.config.settings import (
    Count,
    CountOrZero,
    Positive,
    PositiveOrZero,
    Range,
    SettingsGroup,
    Share,
    ShareOrAll,
)
from keras_transformer.errors import InputError

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
    """Where the sentence pairs come from, and which are used."""

    GROUP = "data"

    source_train: str | None = None
    """Source sentences for training: a UTF-8 file, one per line; gzip if its name ends in .gz."""
    target_train: str | None = None
    """Their translations, in the same order."""
    source_valid: str | None = None
    """Source sentences for validation; null: those of the data set, or held-out training pairs."""
    target_valid: str | None = None
    """Their translations, in the same order."""
    dataset: str | None = None
    """A TensorFlow data set instead of files, such as tfds:ted_hrlr_translate/pt_to_en."""
    max_length: Count = 128
    """Maximum tokens per sentence, including the end token; longer pairs are skipped."""
    validation_share: Share = 0.01
    """Share of the training pairs that is held out if there is no validation text."""
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
    """Type of tokenizer to train."""
    model_type: Literal["bpe", "unigram"] = "bpe"
    """Type of SentencePiece model to train."""
    vocab_size: Count = 10_000
    """Number of tokens in a vocabulary, including the four special tokens."""
    shared: bool = True
    """Whether source and target share one vocabulary."""
    model: str | None = None
    """A SentencePiece model or WordPiece vocabulary file, used instead of training one."""
    sampling: Share = 0.0
    """Subword sampling: share of merges that BPE skips, or alpha of unigram; 0 switches it off."""
    user_symbols: str | None = None
    """Words, separated by spaces, that always stay one token, such as language tags."""

    def __post_init__(self):
        super().__post_init__()
        if self.model is not None and not self.shared:
            raise InputError(
                "Expected one vocabulary for both languages with your own tokenizer file. "
                f"Received: shared=false, model={self.model}. Leave one of them out."
            )
        if self.kind == "wordpiece" and self.sampling:
            raise InputError(
                "Expected no subword sampling with WordPiece, which does not support it. "
                f"Received: kind={self.kind}, sampling={self.sampling}. "
                "Set sampling to 0, or kind to sentencepiece."
            )
        if self.user_symbols and (self.kind == "wordpiece" or self.model is not None):
            raise InputError(
                "Expected user symbols only if a SentencePiece model is trained. Received: "
                f"user_symbols={self.user_symbols}, kind={self.kind}, model={self.model}. "
                "Leave them out, or train a SentencePiece model."
            )
        if self.sampling and (self.model or "").endswith(".txt"):
            raise InputError(
                "Expected no subword sampling with WordPiece, which does not support it. "
                f"Received: model={self.model}, sampling={self.sampling}. Set sampling to 0."
            )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(SettingsGroup):
    """How the model is trained."""

    GROUP = "training"

    batch_tokens: Count = 4096
    """Maximum tokens per step on all devices: sentences times the longest length, with padding."""
    max_steps: Count = 100_000
    """Maximum number of optimizer steps."""
    max_minutes: Positive | None = None
    """Maximum minutes of training; null means no limit."""
    schedule: Literal["noam", "inverse_square_root", "linear", "cosine"] = "noam"
    """Learning rate schedule; noam is the paper's, linear and cosine fall to zero at the end."""
    peak_learning_rate: Positive = 0.005
    """Highest learning rate of the schedules except noam."""
    warmup_steps: Count = 4000
    """Number of steps during which the learning rate rises."""
    label_smoothing: Share = 0.1
    """Probability that the loss spreads evenly over all tokens of the vocabulary."""
    r_drop: PositiveOrZero = 0.0
    """R-Drop's alpha: weight of the divergence between two predictions of each batch; 0: off."""
    distill_from: str | None = None
    """Runs, separated by spaces, whose mean prediction replaces some labels; null means none."""
    distill_share: ShareOrAll = 0.5
    """Share of the labels that are drawn from the prediction of the runs in distill_from."""
    clip_norm: Positive | None = None
    """Maximum norm of the gradient over all weights; null means no limit."""
    ema: Share | None = None
    """Decay, such as 0.999, of a moving average of the weights that replaces them; null: none."""
    checkpoint_every: Count = 1000
    """Number of steps between two checkpoints and their validations."""
    keep_checkpoints: Count = 10
    """Number of last checkpoints to keep. At the end, validation chooses one, or an average."""
    patience: CountOrZero = 10
    """Stop after this number of validations without a better score (BLEU); 0 means never."""
    bleu_tokenizer: str = "13a"
    """sacreBLEU's tokenizer for validation BLEU: 13a, none, intl, char, zh and others."""
    samples: CountOrZero = 0
    """Number of sentences whose translations are shown at each validation."""
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
    """How translations are searched."""

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
    """Whether the next best hypothesis fills the beam when one ends."""
