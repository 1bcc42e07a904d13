"""The groups of settings of a run, each with its meaning and its default."""

import dataclasses
import os
import re
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
    between,
    check_known,
    settings,
)
from keras_transformer.errors import InputError

TAG = re.compile(r">>[^\s<>]+<<")
"""The tag of a target language, such as `>>fr<<`, at the beginning of a source."""

MAX_TRANSLATIONS = 200
"""Translations of each source token in a lexicon."""

MAX_BEAM_SIZE = 1000
"""The memory of a search grows with it."""
MAX_LENGTH_PENALTY = 10
"""512^14 is too large for float32."""
MAX_NGRAM = 100
"""Each token of an n-gram is compared in an operation of its own."""

MAX_LORA_RANK = 1024
"""More than the width of most models is no low rank."""

LoraRank = Annotated[int, between(0, MAX_LORA_RANK)]
Translations = Annotated[int, between(0, MAX_TRANSLATIONS)]
BeamSize = Annotated[int, between(1, MAX_BEAM_SIZE)]
Ngram = Annotated[int, between(0, MAX_NGRAM)]
Alpha = Annotated[float, between(0, MAX_LENGTH_PENALTY, "a number")]
Minutes = Annotated[
    float, Range("a number above 0 and at most 10 million", lambda value: 0 < value <= 1e7)
]
Weight = Annotated[
    float, Range("a number above 0 and at most 1,000", lambda value: 0 < value <= 1000)
]
Tag = Annotated[str, Range("a tag such as >>fr<<", lambda text: TAG.fullmatch(text) is not None)]
Factor = Annotated[float, Range("a number of at least 1", lambda number: number >= 1)]
# of `training.distribution`
STRATEGIES = ("auto", "one", "mirrored", "multi_worker", "model_parallel", "tpu")


@dataclasses.dataclass(frozen=True)
class CorpusConfig(SettingsGroup):
    """A parallel corpus, an item of the lists `data.train` and `data.valid`."""

    GROUP = "corpus"

    source: Annotated[
        str | None,
        "Source sentences: a UTF-8 file, one per line; compressed if named .gz, .xz or .zst.",
    ] = None
    target: Annotated[str | None, "Their translations, in the same order."] = None
    tsv: Annotated[
        str | None,
        "Instead of both, a file whose lines have source and translation in two columns separated "
        "by a tab; further columns are ignored. A single - is standard input.",
    ] = None
    tag: Annotated[
        Tag | None,
        'A symbol such as ">>fr<<" that stands before each source and tells the target language.',
    ] = None
    tag_from: Annotated[
        str | None,
        "In fine-tuning, the token whose embedding a new tag begins with, such as another tag; "
        "null: the mean of all tokens.",
    ] = None
    max_pairs: Annotated[Count | None, "Pairs that are used, the first ones; null: all."] = None
    weight: Annotated[
        Weight,
        "How often an epoch has each pair, on average: 2 is twice, 0.5 every second time. Text for "
        "validation has none.",
    ] = 1.0

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files, one or two."""
        return tuple(path for path in (self.source, self.target, self.tsv) if path is not None)

    @property
    def files(self) -> tuple[str, ...]:
        """The same, each by the one path that neither links nor `./` lead to in another way."""
        return tuple(path if path == "-" else os.path.realpath(path) for path in self.paths)

    def __post_init__(self):
        super().__post_init__()
        given = [value is not None for value in (self.source, self.target, self.tsv)]
        if given not in ([True, True, False], [False, False, True]):
            raise InputError(
                f"Expected source and target, or tsv. Received: source={self.source}, "
                f"target={self.target}, tsv={self.tsv}. Give both files, or one of two columns."
            )
        if self.tag_from is not None and self.tag is None:
            raise InputError(
                "Expected tag_from only with a tag. "
                f"Received: tag_from={self.tag_from}. Add the tag, or leave it out."
            )


@dataclasses.dataclass(frozen=True)
class DataConfig(SettingsGroup):
    """Where the sentence pairs come from, and which are used."""

    GROUP = "data"

    train: Annotated[
        tuple[CorpusConfig, ...],
        "Corpora to train on: a list whose items have the settings of a corpus below.",
    ] = ()
    valid: Annotated[
        tuple[CorpusConfig, ...],
        "Corpora for validation, a list as well; none: the data set's, or held-out training pairs.",
    ] = ()
    dataset: Annotated[
        str | None,
        "A TensorFlow data set instead of files, such as tfds:ted_hrlr_translate/pt_to_en.",
    ] = None
    prepared: Annotated[
        str | None,
        "A directory of `keras-transformer prepare`, whose tokenized pairs are read instead of the "
        "text; train may be left out, or have other weights.",
    ] = None
    temperature: Annotated[
        Factor,
        "Sampling temperature T: an epoch has the largest corpus once, and more of the others, so "
        "that their shares are as n^(1/T) of their pairs n. Each weight multiplies that; 1: all "
        "pairs once.",
    ] = 1.0
    max_length: Annotated[
        Count, "Maximum tokens per sentence, including the end token; longer pairs are skipped."
    ] = 128
    validation_share: Annotated[
        Share, "Share of the training pairs that is held out if there is no validation text."
    ] = 0.01
    validation_limit: Annotated[Count, "Maximum number of pairs that are held out."] = 2000

    @property
    def names_training_text(self) -> bool:
        return bool(self.train) or (self.dataset or self.prepared) is not None

    def __post_init__(self):
        for name in ("train", "valid"):
            object.__setattr__(self, name, _corpora(f"data.{name}", getattr(self, name)))
        super().__post_init__()
        if any(corpus.weight != 1 for corpus in self.valid):
            raise InputError(
                "Expected weights in data.train only, because all validation pairs count. "
                "Received: a weight in data.valid. Leave it out."
            )
        if [path for each in self.train + self.valid for path in each.paths].count("-") > 1:
            raise InputError(
                "Expected one corpus from standard input. Received: tsv=- more than once. "
                "Write the others to files."
            )
        if self.dataset is not None and self.train:
            raise InputError(
                "Expected training pairs from files or from a data set, not from both. Received: "
                f"train={', '.join(self.train[0].paths)}, dataset={self.dataset}. Leave one out."
            )
        if self.dataset is not None and not self.dataset.startswith("tfds:"):
            raise InputError(
                "Expected tfds: and the name of a TensorFlow data set. "
                f"Received: dataset={self.dataset}. "
                "Write it as tfds:ted_hrlr_translate/pt_to_en."
            )


def _corpora(name, given):
    """Returns a tuple of `CorpusConfig` from a list, whose items may be dicts as in YAML."""
    if not isinstance(given, list | tuple):
        raise InputError(
            f"Expected a list of corpora. Received: {name}={given!r:.80}. "
            "Write it as [{source: a.en, target: a.de}]."
        )
    corpora = []
    for number, corpus in enumerate(given, start=1):
        try:
            if isinstance(corpus, dict):
                for key in corpus:
                    check_known(key, settings(CorpusConfig), "a setting of a corpus")
                corpus = CorpusConfig(**corpus)
            if not isinstance(corpus, CorpusConfig):
                raise InputError(
                    f"Expected the settings of a corpus. Received: {corpus!r:.80}. "
                    "Write them as {source: a.en, target: a.de}."
                )
        except ValueError as error:
            raise InputError(f"{error} ({name}, corpus {number})") from None
        if any((corpus.files, corpus.tag) == (each.files, each.tag) for each in corpora):
            raise InputError(
                f"Expected each corpus once. Received: {', '.join(corpus.paths)} twice in {name}. "
                "Leave one out, and give the other a weight."
            )
        corpora.append(corpus)
    return tuple(corpora)


@dataclasses.dataclass(frozen=True)
class TokenizerConfig(SettingsGroup):
    """How text is split into tokens."""

    GROUP = "tokenizer"

    kind: Annotated[Literal["sentencepiece", "wordpiece"], "Type of tokenizer to train."] = (
        "sentencepiece"
    )
    model_type: Annotated[Literal["bpe", "unigram"], "Type of SentencePiece model to train."] = (
        "bpe"
    )
    vocab_size: Annotated[
        Count, "Number of tokens in a vocabulary, including the four special tokens."
    ] = 10_000
    shared: Annotated[bool, "Whether source and target share one vocabulary."] = True
    model: Annotated[
        str | None,
        "A SentencePiece model or WordPiece vocabulary file, used instead of training one.",
    ] = None
    sampling: Annotated[
        Share,
        "Subword sampling: probability that BPE leaves out a merge, or alpha of unigram; 0: off.",
    ] = 0.0
    normalization: Annotated[
        str,
        "SentencePiece's rules: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf, identity, or a TSV file.",
    ] = "nmt_nfkc"
    byte_fallback: Annotated[
        bool,
        "Whether 256 tokens are bytes, in which characters are written that the training text does "
        "not have, such as an emoji, so that a later training can learn them.",
    ] = False
    user_symbols: Annotated[
        str | None, "Words, separated by spaces, that always stay one token, such as language tags."
    ] = None

    def __post_init__(self):
        super().__post_init__()
        if self.model is not None and not self.shared:
            raise InputError(
                "Expected one vocabulary for both languages with your own tokenizer file. "
                f"Received: shared=false, model={self.model}. Leave one of them out."
            )
        if self.sampling and (self.kind == "wordpiece" or (self.model or "").endswith(".txt")):
            raise InputError(
                "Expected no subword sampling with WordPiece, which does not support it. Received: "
                f"kind={self.kind}, model={self.model}, sampling={self.sampling}. Set sampling to "
                "0, or kind to sentencepiece without a WordPiece file."
            )
        for name in ("normalization", "user_symbols", "byte_fallback"):
            value, default = getattr(self, name), settings(TokenizerConfig)[name].default
            if value != default and (self.kind == "wordpiece" or self.model is not None):
                raise InputError(
                    f"Expected {name} only if a SentencePiece model is trained. Received: "
                    f"{name}={value}, kind={self.kind}, model={self.model}. "
                    "Leave it out, or train a SentencePiece model."
                )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(SettingsGroup):
    """How the model is trained."""

    GROUP = "training"

    batch_tokens: Annotated[
        Count,
        "Maximum tokens per step on all devices: sentences times the longest length, with padding.",
    ] = 4096
    max_steps: Annotated[Count, "Maximum number of optimizer steps."] = 100_000
    max_minutes: Annotated[Minutes | None, "Maximum minutes of training; null means no limit."] = (
        None
    )
    schedule: Annotated[
        Literal["noam", "inverse_square_root", "linear", "cosine"],
        "Learning rate schedule; noam is the paper's, linear and cosine fall to zero at the end.",
    ] = "noam"
    peak_learning_rate: Annotated[
        Positive, "Highest learning rate of the schedules except noam."
    ] = 0.005
    warmup_steps: Annotated[Count, "Number of steps during which the learning rate rises."] = 4000
    label_smoothing: Annotated[
        Share, "Probability that the loss spreads evenly over all tokens of the vocabulary."
    ] = 0.1
    r_drop: Annotated[
        PositiveOrZero,
        "R-Drop's alpha: weight of the divergence between two predictions of each batch; 0: off.",
    ] = 0.0
    distill_from: Annotated[
        str | None,
        "Runs, separated by spaces, whose mean prediction replaces some labels; null means none.",
    ] = None
    distill_share: Annotated[
        ShareOrAll,
        "Share of the labels that are drawn from the prediction of the runs in distill_from.",
    ] = 0.5
    freeze: Annotated[
        str | None,
        "Layers, separated by spaces, whose weights stay as they are, such as encoder or "
        "decoder/block_0; null means none.",
    ] = None
    lora_rank: Annotated[
        LoraRank,
        "LoRA: rank of the adapters that alone are trained, beside all projections of attention "
        "and feed-forward networks; 0: off.",
    ] = 0
    guided_alignment: Annotated[
        str | None,
        "Alignments of words that one attention head learns: lexicon, which finds them, or a file, "
        "such as of fast_align; null means none.",
    ] = None
    guided_alignment_weight: Annotated[
        Positive, "Weight of the loss of guided_alignment, beside that of the translation."
    ] = 0.05
    clip_norm: Annotated[
        Positive | None, "Maximum norm of the gradient over all weights; null means no limit."
    ] = None
    ema: Annotated[
        Share | None,
        "Decay, such as 0.999, of a moving average of the weights that replaces them; null: none.",
    ] = None
    checkpoint_every: Annotated[
        Count, "Number of steps between two checkpoints and their validations."
    ] = 1000
    keep_checkpoints: Annotated[
        Count,
        "Number of last checkpoints to keep. At the end, validation chooses one, or an average.",
    ] = 10
    patience: Annotated[
        CountOrZero,
        "Stop after this number of validations without better BLEU or a lower loss; 0 means never.",
    ] = 10
    bleu_tokenizer: Annotated[
        str, "sacreBLEU's tokenizer for validation BLEU: 13a, none, intl, char, zh and others."
    ] = "13a"
    samples: Annotated[
        CountOrZero, "Number of sentences whose translations are shown at each validation."
    ] = 0
    seed: Annotated[
        CountOrZero, "Seed of the initial weights, shuffling, dropout and held-out pairs."
    ] = 1
    deterministic: Annotated[
        bool, "Makes two runs on one CPU bit-identical, even if one is interrupted; slower."
    ] = False
    gradient_accumulation_steps: Annotated[
        Count, "Number of micro-batches per step on each device, to save memory."
    ] = 1
    rematerialize: Annotated[
        bool,
        "Whether each block is computed again for its gradient, which saves memory.",
    ] = False
    mixed_precision: Annotated[
        Literal["mixed_bfloat16", "mixed_float16"] | None,
        "Keras dtype policy of the model; null means float32.",
    ] = None
    jit_compile: Annotated[
        bool | None, "Whether XLA compiles the step, once for each shape; null lets Keras decide."
    ] = None
    static_shapes: Annotated[
        CountOrZero | None,
        "Maximum number of fixed shapes of batches, each of which XLA compiles; 0 means any; null "
        "means 5 on JAX, else 0.",
    ] = None


@dataclasses.dataclass(frozen=True)
class DecodingConfig(SettingsGroup):
    """How translations are searched."""

    GROUP = "decoding"

    beam_size: Annotated[
        BeamSize, "Number of hypotheses in the beam search; 1 means greedy search."
    ] = 4
    length_penalty: Annotated[
        Alpha, "Exponent alpha of the length normalization; 0 means none."
    ] = 0.6
    length_normalization: Annotated[
        Literal["gnmt", "length"],
        "Form of the length normalization: ((5 + length) / 6)^alpha, or Marian's length^alpha.",
    ] = "gnmt"
    max_length: Annotated[Count, "Maximum tokens of a translation, including the end token."] = 256
    max_source_length: Annotated[
        Count, "Maximum tokens of an input; a longer one is truncated and flagged."
    ] = 256
    shortlist: Annotated[
        Translations,
        "Number of likely translations of each source token to choose from; 0 means all tokens.",
    ] = 0
    keep_beam_full: Annotated[
        bool, "Whether the next best hypothesis fills the beam when one ends."
    ] = False
    min_length: Annotated[
        CountOrZero, "Minimum tokens of a translation, including the end token; 0 means none."
    ] = 0
    no_repeat_ngram: Annotated[
        Ngram, "Number of tokens of which no sequence occurs twice; 0 means any may."
    ] = 0
    repetition_penalty: Annotated[
        Factor, "Factor on the log-probability of tokens that the output has; 1 means no penalty."
    ] = 1.0
