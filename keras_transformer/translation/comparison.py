"""Several systems on one text: scores, a test of their differences, lengths, sentences, a page."""

import difflib
import html
import pathlib
import string
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
PAGE = pathlib.Path(__file__).with_name("comparison.html")


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


def comparison_page(comparison: Comparison) -> str:
    """Returns a page of HTML with all that `compare` has found."""
    systems = list(next(iter(comparison.scores.values())))
    by_tag = comparison.by_tag and _by_group("tag", comparison.by_tag)
    return string.Template(PAGE.read_text(encoding="utf-8")).substitute(
        title=html.escape(" and ".join(systems)),
        scores=_scores(comparison.scores, systems),
        by_length=_by_group("words", comparison.by_length),
        by_tag=by_tag and f"<h2>BLEU by the tag of the source</h2>\n{by_tag}",
        different="".join(map(_sentence, comparison.different)),
        signatures="<br>".join(
            html.escape(f"{metric}|{signature}")
            for metric, signature in comparison.signatures.items()
        ),
    )


def _scores(scores, systems):
    rows = []
    for system in systems:
        cells = [_cell(html.escape(system))]
        for each in scores.values():
            value = each[system]
            test = f" (p = {value['p']:.3f})" if "p" in value else ""
            cells.append(_cell(f"{value['score']:.2f} ± {value['ci']:.2f}{test}", True))
        rows.append(cells)
    return _table([_cell("system", tag="th"), *(_cell(m, True, "th") for m in scores)], rows)


def _by_group(name, groups):
    highest = max((value for each in groups.values() for value in each.values()), default=0)
    rows = []
    for group, values in groups.items():
        for place, (system, value) in enumerate(values.items()):
            width = 100 * value / max(highest, 1e-9)
            rows.append(
                [
                    _cell(html.escape(group) if place == 0 else ""),
                    _cell(html.escape(system)),
                    _cell(f"{value:.2f}", True),
                    _cell(f'<div class="bar" style="width: {width:.0f}%"></div>'),
                ]
            )
    names = (name, False), ("system", False), ("BLEU", True), ("", False)
    return _table([_cell(name, is_number, "th") for name, is_number in names], rows)


def _sentence(each):
    reference = each["reference"]
    rows = [[_cell(f"line {each['line']}"), _cell(""), _cell(html.escape(reference))]]
    for system, value in each["translations"].items():
        columns = _cell(html.escape(system)), _cell(f"{value['chrF2']:.1f}", True)
        rows.append([*columns, _cell(_marked(value["text"], reference))])
    return _table("", rows)


def _marked(text, reference):
    """Returns a translation as HTML, with a mark at each word that the reference lacks there."""
    words = text.split()
    matcher = difflib.SequenceMatcher(None, reference.split(), words, autojunk=False)
    parts = []
    for kind, _, _, start, end in matcher.get_opcodes():
        part = html.escape(" ".join(words[start:end]))
        if part:
            parts.append(part if kind == "equal" else f"<mark>{part}</mark>")
    return " ".join(parts)


def _table(head, rows):
    lines = "".join(f"<tr>{''.join(row)}</tr>\n" for row in [head, *rows] if row)
    return f"<table>\n{lines}</table>\n"


def _cell(content, is_number=False, tag="td"):
    return f"<{tag}{' class=number' if is_number else ''}>{content}</{tag}>"
