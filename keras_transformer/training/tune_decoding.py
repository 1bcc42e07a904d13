"""Chooses the beam size and the length penalty of a run by the BLEU of validation text."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from keras_transformer.config import DecodingConfig
from keras_transformer.data import ParallelCorpus
from keras_transformer.errors import InputError
from keras_transformer.runs import load_run
from keras_transformer.runs.run import Run
from keras_transformer.training.translation_task import validation_text_of_run
from keras_transformer.translation.evaluation import bleu
from keras_transformer.translation.lexicon import load_lexicon
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

BEAM_SIZES = (1, 2, 4, 8)
LENGTH_PENALTIES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)


class TunedDecoding(NamedTuple):
    """The search that `tune_decoding` has chosen."""

    decoding: DecodingConfig
    """The settings of the search, which the run now has."""
    bleu: float
    """BLEU of the validation text with this search, 0 to 100."""
    bleu_before: float
    """The same with the search that the run had before."""


def tune_decoding(
    path: StrPath,
    corpus: ParallelCorpus | None = None,
    beam_sizes: Iterable[int] = BEAM_SIZES,
    length_penalties: Iterable[float] = LENGTH_PENALTIES,
    checkpoint: str | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    write: Callable[[str], Any] = print,
) -> TunedDecoding:
    """Translates validation text with every pair of settings and saves the best pair in the run.

    The search that the run has now is tried too. Where two have the same BLEU, the smaller beam
    wins, which is faster. `translate`, `evaluate`, `export` and `keras_transformer.load` use the
    settings of the run.

    Args:
        path: the run directory.
        corpus: `ParallelCorpus` to translate; None: the validation text that the settings of the
            run name. Do not take the text that the final score is measured on.
        beam_sizes, length_penalties: the values to try; with a beam of 1, which is greedy search,
            no length penalty has an effect.
        checkpoint: "best", "last" or "averaged"; None: the weights that validation found better.
        lowercase: see `evaluation.bleu`.
        tokenize: see `evaluation.bleu`; None: the run's `training.bleu_tokenizer`.
        write: called with each line of the report.
    Returns:
        `TunedDecoding`.
    Raises:
        ValueError: there is no run, it is being trained, its validation text cannot be read, or a
            value is outside its range. The run is then as it was.

    Example:
        tune_decoding("runs/python", corpus, beam_sizes=(1, 4), length_penalties=(0.6,)).decoding
    """
    run = Run(path)
    run.load_config()  # refuses other directories before one is locked
    with run.locked():
        model, tokenizer, target_tokenizer, config = load_run(path, checkpoint)
        before = config.decoding
        tokenize = tokenize or config.training.bleu_tokenizer
        searches = _searches(before, beam_sizes, length_penalties)
        if corpus is None:
            corpus = validation_text_of_run(run, config, write)
        bleu(corpus.target, corpus.target, lowercase, tokenize, hints=False)  # refuses a tokenizer
        write(f"validation  {len(corpus):,} pairs, {len(searches)} searches")
        lexicon = load_lexicon(path) if before.shortlist else None
        scores = {}
        for search in searches:
            translator = Translator(model, tokenizer, target_tokenizer, search, lexicon=lexicon)
            start = time.perf_counter()
            translations = translator(corpus.source)
            seconds = time.perf_counter() - start
            score = bleu(translations, corpus.target, lowercase, tokenize, hints=False).value
            scores[search] = score
            is_greedy = search.beam_size == 1  # which has no use for a length penalty
            penalty = "" if is_greedy else f"length penalty {search.length_penalty:g}"
            beam = f"beam {search.beam_size:<4}   {penalty:<18}"
            write(f"{beam}   BLEU {score:5.2f}   {seconds:5.1f} s")
        best = max(scores, key=lambda search: (round(scores[search], 2), -search.beam_size))
        dataclasses.replace(config, decoding=best).save(run.config_path)
    return TunedDecoding(best, scores[best], scores[before])


def _searches(before, beam_sizes, length_penalties):
    """Returns the list of different `DecodingConfig`s to try, `before` among them."""
    penalties = list(length_penalties)
    searches = [
        dataclasses.replace(before, beam_size=beam_size, length_penalty=penalty)
        for beam_size in sorted(set(beam_sizes))
        for penalty in ([before.length_penalty] if beam_size == 1 else penalties)
    ]
    if not searches:
        raise InputError(
            "Expected at least one beam size and one length penalty. Received: "
            f"beam_sizes={list(beam_sizes)}, length_penalties={penalties}."
        )
    return list(dict.fromkeys([before, *searches]))
