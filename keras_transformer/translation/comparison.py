"""Several systems on one text: scores, a test of their differences, lengths, and sentences."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from keras_transformer.errors import InputError
from keras_transformer.translation.base_translator import lists_of_pairs
from keras_transformer.translation.evaluation import bleu, length_groups, part_bleu, tag_groups
from keras_transformer.types import Texts

EDGES = 10, 20, 40
"""Words of a reference with which the second group of sentences begins, the third, and so on."""
NUM_DIFFERENT = 20


class Comparison(NamedTuple):
    """What `compare` has found."""

    scores: dict[str, dict[str, dict[str, float]]]
    """From the name of a metric and of a system to its `score`, the `mean` and the half width `ci`
    of the 95 % interval of the bootstrap, and `p` of the difference from the first system."""
    signatures: dict[str, str]
    """sacreBLEU's signature of each metric."""
    by_length: dict[str, dict[str, float]]
    """BLEU of each group of sentences, by the words of the reference, and of each system."""
    by_tag: dict[str, dict[str, float]]
    """The same by the tag with which a source begins; {} where the sources have none."""
    different: list[dict[str, Any]]
    """The sentences on which two systems differ most, by chrF2."""


def compare(
    systems: Mapping[str, Texts],
    references: Sequence[Texts],
    lowercase: bool = False,
    tokenize: str = "13a",
    sources: Texts | None = None,
) -> Comparison:
    """Compares systems with the first one by paired bootstrap resampling.

    The test is sacreBLEU's (Koehn, 2004, https://aclanthology.org/W04-3250), with 1,000 samples.

    Args:
        systems: dict from the names of two or more systems to their translations.
        references: lists of str, one for each reference.
        lowercase, tokenize: see `bleu`.
        sources: list of str, for the scores by tag.
    Raises:
        ValueError: fewer than two systems, not a source for each reference, or what `bleu` refuses.
    """
    if len(systems) < 2:
        raise InputError(
            f"Expected two systems to compare. Received: {', '.join(systems)}. Name another."
        )
    if sources is not None:
        sources, _ = lists_of_pairs(sources, references[0])
    for hypotheses in systems.values():
        bleu(hypotheses, references, lowercase, tokenize, hints=False)  # checks the arguments
    metrics = {
        "BLEU": BLEU(lowercase=lowercase, tokenize=tokenize, force=True, references=references),
        "chrF2": CHRF(lowercase=lowercase, references=references),
        "TER": TER(case_sensitive=not lowercase, references=references),
    }
    named: list[tuple[str, Sequence[str]]] = [(name, list(s)) for name, s in systems.items()]
    signatures, found = PairedTest(named, metrics, None, test_type="bs")()
    scores = {
        metric: {
            name: _numbers(result) for name, result in zip(systems, found[metric], strict=True)
        }
        for metric in metrics
    }
    (_, baseline), *others = named
    for name, texts in others:
        if texts == baseline:  # sacreBLEU finds no sample with a larger difference than none
            for metric in metrics:
                scores[metric][name]["p"] = 1.0
    by_length, by_tag = (
        {
            group: {
                name: part_bleu(hypotheses, references, rows, lowercase, tokenize)
                for name, hypotheses in systems.items()
            }
            for group, rows in groups.items()
        }
        for groups in (length_groups(references[0], EDGES), tag_groups(sources or []))
    )
    printed = {metric: str(signature) for metric, signature in signatures.items()}
    different = _most_different(systems, references, lowercase)
    return Comparison(scores, printed, by_length, by_tag, different)


def _numbers(result):
    numbers = {"score": result.score, "mean": result.mean, "ci": result.ci, "p": result.p_value}
    return {name: float(value) for name, value in numbers.items() if value is not None}


def _most_different(systems, references, lowercase):
    """Returns the sentences whose chrF2 differs most between any system and the first."""
    metric = CHRF(lowercase=lowercase)
    lines = list(zip(*references, strict=True))
    values = {
        name: [metric.sentence_score(*pair).score for pair in zip(hypotheses, lines, strict=True)]
        for name, hypotheses in systems.items()
    }
    first, *others = systems
    gaps = [
        (abs(values[name][i] - values[first][i]), i, name)
        for name in others
        for i in range(len(lines))
        if systems[name][i] != systems[first][i]
    ]
    return [
        {
            "line": i + 1,
            "reference": lines[i][0],
            "translations": {
                name: {"text": systems[name][i], "chrF2": values[name][i]}
                for name in (first, other)
            },
        }
        for _, i, other in sorted(gaps, key=lambda gap: (-gap[0], gap[1]))[:NUM_DIFFERENT]
    ]
