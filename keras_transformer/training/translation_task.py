"""What `train_task` needs to know about translation: text, tokenizers, batches, model and score."""

import contextlib
import dataclasses
import importlib
import itertools
import pathlib

from keras_transformer.data import ParallelCorpus, TranslationBatches
from keras_transformer.data.alignments import read_links
from keras_transformer.data.parallel import from_tfds, tags_of
from keras_transformer.data.prepared import PreparedBatches, PreparedCorpus
from keras_transformer.data.remarks import remarks
from keras_transformer.data.shards import TOKENIZER
from keras_transformer.data.soft_labels import SoftLabels
from keras_transformer.errors import InputError
from keras_transformer.runs.checkpoints import TrainingState
from keras_transformer.runs.load import build_model
from keras_transformer.runs.run import Identity, Run, checksum_of_tokenizers, load_tokenizers
from keras_transformer.tokenizers import SentencePieceTokenizer, WordPieceTokenizer, from_file
from keras_transformer.training.callbacks import BleuCallback
from keras_transformer.training.distillation import predicted_labels, teachers_of
from keras_transformer.training.guided_alignment import LEXICON, links_of_batches
from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.translation.evaluation import bleu, tokenizer_hint

DROPOUTS = ("dropout", "attention_dropout", "ff_dropout", "word_dropout")


class TranslationTask:
    """Learns to translate from a parallel corpus.

    A task for another kind of model has the same attributes and methods. `train_task` calls
    `prepare` first, then the others.

    Args:
        corpora: `(training, validation)`, two `ParallelCorpus`; None: those that `config.data`
            names.
    Attributes:
        monitor: name of the validation metric that chooses between checkpoints: at least 0, and
            the higher the better, see `rank`. `score_name` is its name in messages.
        tokenizers: `(source, target)`; the run directory stores them.
        new_rows: for each token that was added to those of the run to start from, the id of the
            token whose embedding it begins with, or None for the mean of all.
        batches, valid_batches: `TranslationBatches`, or `PreparedBatches` and these.
    """

    monitor = "val_bleu"
    score_name = "BLEU"

    def __init__(self, corpora=None):
        self.corpora = corpora
        self.new_rows = []
        self._alignments = None  # the checksum of their file

    def prepare(self, config, run, init_from, devices, write):
        """Reads the text, loads or trains the tokenizers and makes the batches.

        Args:
            run: `Run`. If it exists already, its tokenizers are used.
            init_from: path of another run whose tokenizers are used, or None.
            write: called with each line of the report.
        """
        self.config = config
        # refuses a tokenizer that is unknown or not installed now, not after those of the run
        bleu(["a"], ["a"], tokenize=config.training.bleu_tokenizer, hints=False)
        tokenizers = devices.from_chief(lambda: ready_tokenizers(config, run, init_from))
        if self.corpora is None:
            self.corpora = read_corpora(config.data, config.training.seed, write)
        train_corpus, valid_corpus = self.corpora
        is_prepared = isinstance(train_corpus, PreparedCorpus)
        if is_prepared:
            train_corpus.check_tokenizers(checksum_of_tokenizers(tokenizers))
        tags = tags_of([*train_corpus.parts, *valid_corpus.parts])
        guide = config.training.guided_alignment
        links = None
        if guide not in (None, LEXICON):  # refuses a wrong file before a tokenizer is trained
            links = devices.from_chief(lambda: read_links(guide, train_corpus))
            self._alignments = links.checksum()
        self.tokenizers = tokenizers or devices.from_chief(
            lambda: train_tokenizers(config, train_corpus, tags, write)
        )
        if init_from is not None and not run.exists and not teachers_of(config.training):
            self._add_tags(write)
        source_tokenizer, target_tokenizer = self.tokenizers
        check_tags(tags, source_tokenizer, config.training.distill_from)
        planned = dict(
            batch_tokens=config.training.batch_tokens,
            static_shapes=config.training.static_shapes,
        )
        settings = dict(
            tokenizer=source_tokenizer,
            target_tokenizer=target_tokenizer,
            max_length=config.data.max_length,
            **planned,
        )
        seed = config.training.seed
        if is_prepared:
            self.batches = PreparedBatches(train_corpus, seed=seed, **planned)
        else:
            sampling = config.tokenizer.sampling
            self.batches = make_batches(
                "training", train_corpus, seed=seed, sampling=sampling, **settings
            )
        self.valid_batches = make_batches("validation", valid_corpus, shuffle=False, **settings)
        self._bleu = BleuCallback(
            valid_corpus.source,
            valid_corpus.target,
            source_tokenizer,
            target_tokenizer,
            # greedy search, of texts as long as the run's own search takes
            decoding=dataclasses.replace(config.decoding, beam_size=1, shortlist=0),
            tokenize=config.training.bleu_tokenizer,
            groups=valid_corpus.groups(),
            samples=config.training.samples,
            write=write,
        )
        if len(train_corpus.parts) > 1:
            for part, size in zip(train_corpus.parts, train_corpus.sizes, strict=True):
                name = f"{part.tag} {part.name}" if part.tag else part.name
                write(f"corpus      {name}: {size:,} pairs, {part.weight:.3g} times an epoch")
        write(f"training    {self.batches.summary}; {len(self.batches):,} batches an epoch")
        write(f"validation  {self.valid_batches.summary}")
        if hint := tokenizer_hint(valid_corpus.target, config.training.bleu_tokenizer):
            write(f"            {hint} (training.bleu_tokenizer)")
        if not is_prepared:  # its text is not here
            for remark in remarks(train_corpus, valid_corpus, self.batches.rows):
                write(remark)
        if teachers_of(config.training):
            self.batches.soft_labels = devices.from_chief(lambda: self._soft_labels(run, write))

        if guide is not None:
            guided = self.batches, train_corpus, self.tokenizers, links, write
            self.batches.links = devices.from_chief(lambda: links_of_batches(*guided))

    def _add_tags(self, write):
        """Adds the tags that the tokenizers of another run do not know to their vocabularies."""
        source, target = self.tokenizers
        pieces = source.pieces
        new = {
            part.tag: part.tag_from
            for part in self.corpora[0].parts
            if part.tag is not None and part.tag not in pieces
        }
        if not new or not hasattr(source, "with_symbols"):
            return
        if self.config.training.lora_rank:
            raise InputError(
                "Expected tags that the run to start from knows, as adapters leave the embeddings "
                f"as they are. Received: {', '.join(new)}, lora_rank="
                f"{self.config.training.lora_rank}. Train without lora_rank first."
            )
        for tag, like in new.items():
            if like is not None and like not in pieces:
                raise InputError(
                    f"Expected tag_from to be a token of the run to start from. Received: {like} "
                    f"for the tag {tag}. Leave it out, or name another."
                )
            self.new_rows.append(None if like is None else pieces.index(like))
            write(f"tokenizer   {tag} is a new token, like {like or 'the mean of the others'}")
        extended = source.with_symbols(list(new))
        if target is source:
            target = extended
        elif self.config.tokenizer.shared:  # two ways to split, one vocabulary
            target = target.with_symbols(list(new))
        self.tokenizers = extended, target

    def _soft_labels(self, run, write):
        """Returns the `SoftLabels` of a run: those that it has saved, or new ones."""
        training = self.config.training
        if run.has_soft_labels:
            num_tokens = len(self.batches.rows[1].ids)
            return SoftLabels.load(run.soft_labels_path, num_tokens, training.distill_share)
        return predicted_labels(teachers_of(training), training.distill_share, self.batches, write)

    def save(self, run):
        """Writes what a run needs, beside its settings and tokenizers, when it goes on."""
        if self.batches.soft_labels is not None and not run.has_soft_labels:
            self.batches.soft_labels.save(run.soft_labels_path)

    def build_model(self, model_class):
        """Returns the untrained model.

        Raises:
            InputError: R-Drop without dropout, which would compare equal predictions.
        """
        training = self.config.training
        model = build_model(self.config, *self.tokenizers, training.mixed_precision, model_class)
        if training.r_drop and not any(getattr(model, name, 0.0) for name in DROPOUTS):
            raise InputError(
                "Expected a model with dropout, because R-Drop compares the predictions of two "
                f"dropouts. Received: training.r_drop={training.r_drop:g} and no dropout. "
                "Set model.dropout=0.3, or training.r_drop=0."
            )
        return model

    def check_trained_part(self, model):
        """Raises `InputError` where new tags would keep the embedding that they begin with."""
        if self.new_rows and not model.source_embedding.trainable_variables:
            new = self.tokenizers[0].pieces[-len(self.new_rows) :]
            raise InputError(
                "Expected the source embedding to be trained, because it has rows of new tags. "
                f"Received: {', '.join(new)}, training.freeze={self.config.training.freeze}. "
                "Freeze other layers, such as encoder/block_0, or leave the tags out."
            )

    def loss(self):
        training = self.config.training
        return TokenCrossEntropy(
            training.label_smoothing, training.r_drop, training.guided_alignment_weight
        )

    def metrics(self):
        return [TokenAccuracy(), Perplexity()]

    def callbacks(self):
        """Returns the callbacks that add `monitor` to the logs at the end of an epoch."""
        return [self._bleu]

    def sample_lines(self, number):
        """Returns the lines that show the first sentences of the last validation, if it has any."""
        return self._bleu.sample_lines(number)

    def scores(self, model, metrics):
        """Returns `monitor`, and perhaps more metrics, of a model whose validation gave these."""
        if self._bleu.model is not model:  # `fit` sets it, but an ended training calls no `fit`
            self._bleu.set_model(model)
        return self._bleu.scores(self._bleu.translations())

    def rank(self, metrics):
        """Returns `(score, -loss)` of a validation, by which weights are compared.

        BLEU has one decimal here, as less is noise. Below 1, where hardly any four words in a row
        are right and sacreBLEU's smoothing makes most of the score, it is 0. The loss decides
        between equal scores.

        Args:
            metrics: what `model.evaluate` returned, each name with "val_" before it, and `monitor`.
        """
        score = metrics[self.monitor]
        return (round(score, 1) if score >= 1 else 0.0), -metrics["val_loss"]

    def identity(self):
        """Returns the `Identity` of a new run with this data."""
        return Identity.of(self.corpora, self.tokenizers, self._alignments)

    def new_state(self):
        """Returns the `TrainingState` of a new run with this data."""
        return TrainingState(
            num_pairs=self.batches.summary.num_pairs,
            num_target_tokens=self.batches.num_target_tokens,
        )


def ready_tokenizers(config, run, init_from):
    """Returns the `(source, target)` tokenizers of a run or a file; None: they must be trained."""
    if run.exists:
        return run.load_tokenizers(config)
    if init_from is not None:
        return Run(init_from).load_tokenizers(config)
    if teachers := teachers_of(config.training):
        return Run(teachers[0]).load_tokenizers(config)
    if config.data.prepared is not None:
        directory = pathlib.Path(config.data.prepared, TOKENIZER)
        return load_tokenizers(directory, config.tokenizer.shared)
    if config.tokenizer.model is not None:
        return (from_file(config.tokenizer.model),) * 2
    check_learner(config.tokenizer)
    return None


def check_learner(settings):
    """Imports what learns the tokenizer, so that a missing TensorFlow is an error at the start."""
    if settings.model is None and settings.kind == "wordpiece":
        importlib.import_module("keras_transformer.tokenizers.graph.word_piece_learner")


def read_corpora(data, seed, write):
    """Returns the `(training, validation)` corpora that a `DataConfig` names."""
    if data.prepared is not None:
        corpus = PreparedCorpus(data.prepared, data)
        return corpus, corpus.validation()
    valid_corpus = ParallelCorpus.from_corpora(data.valid) if data.valid else None
    train_corpus, its_own = _training_text(data)
    valid_corpus = valid_corpus or its_own
    if valid_corpus is None:
        train_corpus, valid_corpus = train_corpus.split(
            data.validation_share, data.validation_limit, seed
        )
        write(f"held out    {len(valid_corpus):,} of the training pairs for validation")
    return train_corpus, valid_corpus


def _training_text(data):
    """Returns the training corpus, and the validation corpus of its data set, which may be None."""
    if data.dataset is not None:
        return from_tfds(data.dataset.removeprefix("tfds:"))
    if not data.train:
        raise InputError(
            "Expected data to train on: data.train, or data.dataset. Received: neither. Give files "
            "(--source-train F --target-train F, or --train F.tsv), or the name of a data set."
        )
    return ParallelCorpus.from_corpora(data.train, data.temperature), None


def training_text_of_run(run, config, write):
    """Returns the training corpus that the settings of a run name.

    Raises:
        InputError: it cannot be read.
    """
    with _text_of_run(run, "other parallel text"):
        if config.data.valid or config.data.prepared:  # nothing is held out
            return _training_text(config.data)[0]
        return read_corpora(config.data, config.training.seed, write)[0]


def validation_text_of_run(run, config, write):
    """Returns the validation corpus that the settings of a run name.

    Raises:
        InputError: it cannot be read, or is not the text that the run was validated with.
    """
    with _text_of_run(run, "other parallel text that the model was not trained on"):
        if config.data.valid and config.data.prepared is None:
            corpus = ParallelCorpus.from_corpora(config.data.valid)
        else:
            _, corpus = read_corpora(config.data, config.training.seed, write)
        if run.identity.validation_text not in (None, corpus.checksum()):
            raise InputError("Expected the validation text of the run. Received: other text.")
    return corpus


@contextlib.contextmanager
def _text_of_run(run, other):
    """Says in an error whose text it is about, and which other text to give instead."""
    try:
        yield
    except ValueError as error:
        raise InputError(
            f"{error} (the text that the settings of {run.path} name) Give {other}: "
            "--source F --target F, or a corpus."
        ) from None


def make_batches(name, corpus, **settings):
    """Returns the `TranslationBatches` of a corpus; errors say which text they are about."""
    try:
        return TranslationBatches(corpus, **settings)
    except ValueError as error:
        raise InputError(f"{error} (the {name} text)") from None


def check_tags(tags, tokenizer, distill_from=None):
    """Raises `InputError` unless each tag is one token.

    Args:
        distill_from: the setting; not None where the tokenizer is that of these runs.
    """
    for tag in tags:
        (ids,) = tokenizer.encode_on_host([tag])
        pieces = tokenizer.to_pieces(ids)
        if tag not in pieces and distill_from:
            raise InputError(
                "Expected tags that the runs in distill_from know, because they predict the labels "
                f"of this text. Received: {tag}, distill_from={distill_from}. Leave the tag out, "
                "or fine-tune these runs on text with the tag first (--init-from)."
            )
        if tag not in pieces:
            raise InputError(
                f"Expected a tokenizer to which the tag {tag} is one token. Received: one that "
                f"splits it: {' '.join(pieces)}. Leave the tag out, or train a SentencePiece model."
            )


def train_tokenizers(config, corpus, tags, write):
    """Returns the `(source, target)` tokenizers that the settings describe.

    Args:
        corpus: the `ParallelCorpus` to learn from, or the `StreamedText`.
        tags: list of str, user symbols beside those of the settings.
    """
    settings = config.tokenizer
    if tags and settings.kind == "wordpiece":
        raise InputError(
            "Expected no tags with WordPiece, which splits them. Received: tokenizer.kind="
            f"wordpiece, tag={tags[0]}. Leave the tag out, or train a SentencePiece model."
        )
    symbols = list(dict.fromkeys([*(settings.user_symbols or "").split(), *tags]))

    def trained_on(sentences):
        if settings.kind == "wordpiece":
            return WordPieceTokenizer.train(sentences, settings.vocab_size)
        return SentencePieceTokenizer.train(
            sentences,
            settings.vocab_size,
            settings.model_type,
            config.training.seed,
            symbols,
            settings.normalization,
            settings.byte_fallback,
        )

    if settings.shared:
        write(f"tokenizer   training one with {settings.vocab_size:,} tokens")
        tokenizer = trained_on(itertools.chain(corpus.source, corpus.target))
        return tokenizer, tokenizer
    write(f"tokenizers  training two with {settings.vocab_size:,} tokens each")
    return trained_on(corpus.source), trained_on(corpus.target)
