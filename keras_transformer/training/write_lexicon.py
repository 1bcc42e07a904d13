"""Learns the lexicon of a run, from which shortlists are made, from its training text."""

import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_transformer.data import ParallelCorpus
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_directory
from keras_transformer.runs.run import Run, checksum_of_tokenizers
from keras_transformer.training.translation_task import training_text_of_run
from keras_transformer.translation.lexicon import Lexicon
from keras_transformer.types import StrPath

MAX_PAIRS = 2**20
"""Pairs that are tokenized, several times as many as a lexicon is learned from; of more text, every
n-th pair."""


def write_lexicon(
    path: StrPath, corpus: ParallelCorpus | None = None, write: Callable[[str], Any] = print
) -> pathlib.Path:
    """Learns a `Lexicon` and writes it into a run directory, where `load` finds it.

    Args:
        path: the run directory.
        corpus: `ParallelCorpus`; None: the training text that the run's settings name.
        write: called with each line of the report.
    Returns:
        `pathlib.Path` of the file.
    Raises:
        ValueError: there is no run, or its training text cannot be read or has no pair that is
            short enough.

    Example:
        write_lexicon("runs/python", corpus)
        translator = keras_transformer.load("runs/python", shortlist=50)
    """
    run = Run(path)
    config = run.load_config()
    check_directory(run.path)  # before the work of minutes
    tokenizers = run.load_tokenizers(config)
    if corpus is None:
        corpus = training_text_of_run(run, config, write)
    every = max(1, -(-len(corpus) // MAX_PAIRS))
    sides = zip(tokenizers, (corpus.source[::every], corpus.target[::every]), strict=True)
    source_rows, target_rows = (list(RaggedIds.encode(*side).texts()) for side in sides)
    kept = [
        max(len(source_row), len(target_row)) < config.data.max_length  # with the end token
        for source_row, target_row in zip(source_rows, target_rows, strict=True)
    ]
    if not any(kept):
        raise InputError(
            "Expected pairs to learn a lexicon from. Received: "
            f"{len(kept):,} pairs, all longer than data.max_length={config.data.max_length} "
            "tokens. Give text with a sentence on each line."
        )
    lexicon = Lexicon.learn(
        list(itertools.compress(source_rows, kept)),
        list(itertools.compress(target_rows, kept)),
        tokenizers[0].vocab_size,
        None if config.tokenizer.shared else tokenizers[1].vocab_size,
    )
    lexicon.save(run.lexicon_path, checksum_of_tokenizers(tokenizers))
    num_entries = np.count_nonzero(lexicon.table[:, 1:])
    write(f"lexicon     {num_entries:,} translations, from {sum(kept):,} pairs")
    return run.lexicon_path
