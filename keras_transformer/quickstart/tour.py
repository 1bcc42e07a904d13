"""A tour of the package in minutes and without downloads: from a corpus to an exported model."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

import tqdm

from keras_transformer.config import Config, TokenizerConfig, TrainingConfig
from keras_transformer.data import ParallelCorpus
from keras_transformer.export import export_saved_model
from keras_transformer.plots import attention_maps, learning_curves
from keras_transformer.quickstart.phrases import phrase_corpus
from keras_transformer.runs.run import Run
from keras_transformer.training import train
from keras_transformer.translation.evaluation import bleu
from keras_transformer.translation.loading import load

NUM_SENTENCES = 8000
NUM_SHOWN = 12
"""Test sentences that are printed with their translations."""
NEW_SENTENCES = (
    "The queen says that her brother has to repair the old bicycle.",
    "Although it is raining, the children want to play in the garden.",
    "The coat that Maria is looking for is too expensive.",
)
"""Sentences for the export. The attention map shows the first, whose verbs German puts last."""
CONFIG = Config(
    tokenizer=TokenizerConfig(vocab_size=1200),  # nearly every word is one token
    model=dict(
        num_layers=2, d_model=128, ff_dim=256, num_heads=4, dropout=0.1, normalize_first=True
    ),
    training=TrainingConfig(
        batch_tokens=1536,
        max_steps=2400,
        schedule="inverse_square_root",
        peak_learning_rate=0.004,
        warmup_steps=300,
        checkpoint_every=240,
        keep_checkpoints=5,
        patience=0,
    ),
)


class Tour(NamedTuple):
    """The results of the tour."""

    bleu: float
    """BLEU of the held-out test sentences, by sacreBLEU, cased, with tokenizer 13a."""
    answers: list[str]
    """Translations of `NEW_SENTENCES` by the export, in a fresh process."""


def run(output="quickstart", config=CONFIG, num_sentences=NUM_SENTENCES):
    """Reads a corpus, trains, translates, draws and exports, and explains it on standard output.

    Args:
        output: directory for the run, the pictures and the export. If there is a run already, its
            training continues unless it has finished; the export becomes a new version.
        config: `Config`.
        num_sentences: number of sentences, see `phrase_corpus`.
    Returns:
        `Tour`.
    Raises:
        ValueError: `output` contains a run with other settings or data.
        RuntimeError: the export fails in a fresh process.
    """
    started = time.monotonic()
    output = pathlib.Path(output)
    run_path = output / "run"

    _say_title("1. A parallel corpus")
    splits = phrase_corpus(num_sentences)
    train_corpus, valid_corpus, test_corpus = map(ParallelCorpus.from_pairs, splits)
    _say(f"A small grammar made {num_sentences:,} sentences, each in English and in German.")
    _say(f"The model learns from {len(train_corpus):,} of them.")
    _say(f"{len(valid_corpus)} others validate it, and {len(test_corpus)} test it.")
    _say("Two of the training sentences:")
    for pair in splits.train[:2]:
        _say_block(*zip(("source", "reference"), pair, strict=True))

    _say_title("2. Training")
    _say("BLEU is the score of the validation sentences, from 0 to 100.\n")
    train(config, run_path, corpora=(train_corpus, valid_corpus), write=_say)
    translator = load(run_path)

    _say_title("3. Translations of test sentences")
    translations = translator(test_corpus.source)
    rows = list(zip(test_corpus.source, translations, test_corpus.target, strict=True))
    score = bleu(translations, test_corpus.target)
    num_same = sum(translation == reference for _, translation, reference in rows)
    _say(f"BLEU of all {len(rows)}: {score.value:.1f} ({score.signature})")
    _say(f"Identical to the reference: {num_same}. The first {NUM_SHOWN}:")
    for row in rows[:NUM_SHOWN]:
        _say_block(*zip(("source", "translation", "reference"), row, strict=True))

    _say_title("4. Pictures")
    curves_path, attention_path = output / "learning_curves.png", output / "attention.png"
    learning_curves(Run(run_path).metrics_path, curves_path)
    attention_maps(translator.attention(NEW_SENTENCES[0]), attention_path)
    _say_block(
        (curves_path, "loss, BLEU and learning rate over the training"),
        (attention_path, f'what each German token attends to in "{NEW_SENTENCES[0]}"'),
    )

    _say_title("5. Export")
    version_path = export_saved_model(translator, output / "export")
    _say_block((version_path, "a SavedModel for TensorFlow Serving: strings in, strings out"))
    _say("\nA fresh process loads it and translates, like this command:\n")
    _say(f"    {_program()} translate {shlex.quote(str(version_path))}")
    answers = _translate_in_fresh_process(version_path, NEW_SENTENCES)
    for pair in zip(NEW_SENTENCES, answers, strict=True):
        _say_block(*zip(("source", "translation"), pair, strict=True))

    _say_title("6. Next steps")
    _say(_next_steps(run_path, output))
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    _say(f"This took {minutes} min {seconds} s.")
    return Tour(score.value, answers)


def _translate_in_fresh_process(saved_model, sentences):
    process = subprocess.run(
        [sys.executable, "-m", "keras_transformer", "translate", saved_model],
        input="".join(f"{sentence}\n" for sentence in sentences),
        capture_output=True,
        encoding="utf-8",
    )
    if process.returncode:
        raise RuntimeError(f"The export fails in a fresh process: {process.stderr.strip()}")
    return process.stdout.splitlines()


def _next_steps(run_path, output):
    program, run_path = _program(), shlex.quote(str(run_path))
    picture = shlex.quote(str(output / "my_attention.png"))
    sentence = '"Do the tired children want to read my long letter?"'
    return f"""\
Translate a sentence of your own, with words of the corpus, and draw its attention:

    echo {sentence} | {program} translate {run_path}
    {program} plot {run_path} {sentence} --output {picture}

Train on text of your own, one sentence per line (README.md does so with real captions):

    {program} train --source-train train.en --target-train train.de --output runs/mine
"""


def _program():
    """Returns the command of this installation, as typed in the current directory."""
    if shutil.which("keras-transformer"):
        return "keras-transformer"
    return f"{shlex.quote(os.path.relpath(sys.executable))} -m keras_transformer"


def _say_title(title):
    _say(f"\n{title}\n{'-' * len(title)}")


def _say_block(*rows):
    """Prints a blank line, and rows of a name and its text."""
    width = max(len(str(name)) for name, _ in rows)
    _say("".join(f"\n{name!s:{width}}  {text}" for name, text in rows))


def _say(line=""):
    tqdm.tqdm.write(line)  # above a progress bar, not into it
    sys.stdout.flush()  # so that a file or a pipe can be read along
