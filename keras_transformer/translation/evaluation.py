"""Corpus scores of translations by sacreBLEU, each with the signature of how it was computed.

>>> score = bleu(["Ein Hund rennt."], ["Ein Hund läuft."])
>>> score.value, score.signature
"""

import logging
import re
import typing
from collections.abc import Iterable, Sequence

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from keras_transformer.config.groups import TAG
from keras_transformer.errors import InputError
from keras_transformer.types import Texts

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # Japanese, Chinese
)
"""A character of a script that is written without spaces between words."""


class Score(typing.NamedTuple):
    """One corpus score; `str(score)` is sacreBLEU's own line with signature and details."""

    name: str
    """"BLEU" or "chrF2"."""
    value: float
    """0 (nothing matches) to 100."""
    signature: str
    """sacreBLEU's settings and version: two scores compare only where these are equal."""
    text: str

    def __str__(self):
        return self.text


def bleu(
    hypotheses: Texts,
    references: Texts | Sequence[Texts],
    lowercase: bool = False,
    tokenize: str = "13a",
    hints: bool = True,
) -> Score:
    """Returns corpus BLEU (Papineni et al., 2002, https://aclanthology.org/P02-1040).

    Args:
        hypotheses: list of str, the translations.
        references: list of str, or a list of such lists where there are several references, each
            as long as `hypotheses`.
        lowercase: whether both sides are lowercased first.
        tokenize: name of a sacreBLEU tokenizer; `"none"` for text that is tokenized already.
        hints: whether to warn on standard error of text that looks tokenized already, or that has
            no spaces between words.
    Raises:
        ValueError: the line counts differ, there are no lines, the tokenizer is unknown, or its
            packages or model file are missing.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise InputError(
            f"`tokenize` must name a sacreBLEU tokenizer. Received: tokenize={tokenize!r}. "
            f"Choose one of {', '.join(BLEU.TOKENIZERS)}."
        )
    references = _reference_streams(hypotheses, references)
    try:
        quiet = tokenize == "none" or not hints
        metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=quiet)
    # SystemExit is how sacreBLEU reports a download that failed on its certificate
    except (ImportError, OSError, RuntimeError, SystemExit) as error:
        raise InputError(
            f"The sacreBLEU tokenizer {tokenize!r} needs an extra package or a downloaded model "
            f"that is missing ({' '.join(str(error).split())}). Received: tokenize={tokenize!r}. "
            "Install what it names, or choose another tokenizer."
        ) from error
    if hints and (hint := tokenizer_hint(list(references[0]), tokenize)):
        logging.getLogger("sacrebleu").warning(hint)
    return _score(metric, hypotheses, references)


def tokenizer_hint(references: Texts, tokenize: str) -> str | None:
    """Returns which tokenizer to use for text without spaces; None: `tokenize` suits the text."""
    if tokenize not in ("13a", "intl", "none"):
        return None
    words = [word for reference in references for word in reference.split()]
    length = sum(map(len, words))
    unspaced = sum(len(UNSPACED.findall(word)) for word in words)
    if unspaced <= length / 2 or length < 5 * len(words):
        return None  # another script, or words that a tokenizer has separated already
    return (
        f"The references have no spaces between words, so that BLEU with {tokenize} takes a whole "
        "sentence for a word and stays near 0. Choose zh for Chinese, ja-mecab for Japanese, or "
        "char"
    )


def chrf(hypotheses: Texts, references: Texts | Sequence[Texts], lowercase: bool = False) -> Score:
    """Returns corpus chrF2, character 6-grams with beta 2 (Popović, 2015, https://aclanthology.org/W15-3049).

    Arguments and errors are those of `bleu`, without a tokenizer, which characters do not need.
    """
    references = _reference_streams(hypotheses, references)
    return _score(CHRF(lowercase=lowercase), hypotheses, references)


def length_groups(sources: Texts, edges: Iterable[int]) -> dict[str, list[int]]:
    """Groups sentences by the number of their words.

    Args:
        sources: list of str.
        edges: number of words with which the second group begins, the third, and so on.
    Returns:
        A dict from the name of a group, such as `"9-11"`, to the indices of its sentences; groups
        without sentences are left out.
    Raises:
        ValueError: edges that do not rise.
    """
    edges = list(edges)
    if edges != sorted(set(edges)) or (edges and edges[0] < 2):
        raise InputError(f"Expected rising edges, from 2 on. Received: edges={edges}.")
    lengths = [len(source.split()) for source in sources]
    groups = {}
    for first, end in zip([0, *edges], [*edges, None], strict=True):
        name = f"{first}+" if end is None else f"{first}-{end - 1}"
        rows = [i for i, n in enumerate(lengths) if n >= first and (end is None or n < end)]
        if rows:
            groups[name] = rows
    return groups


def tag_groups(sources: Texts) -> dict[str, list[int]]:
    """Returns the sentences of each tag, such as `>>fr<<`, with which sources begin.

    Returns:
        A dict from the tag, or `"no tag"`, to the indices of its sentences; {} if all are of one.
    """
    groups: dict[str, list[int]] = {}
    for i, source in enumerate(sources):
        tag = TAG.match(source.lstrip())
        groups.setdefault(tag[0] if tag else "no tag", []).append(i)
    return dict(sorted(groups.items())) if len(groups) > 1 else {}


def part_bleu(
    hypotheses: Texts,
    references: Texts | Sequence[Texts],
    rows: Iterable[int],
    lowercase: bool = False,
    tokenize: str = "13a",
) -> float:
    """Returns the BLEU of some sentences, without hints.

    Args:
        rows: their indices.
        hypotheses, references, lowercase, tokenize: see `bleu`.
    """
    rows = list(rows)
    streams = _reference_streams(hypotheses, references)
    parts = [[texts[i] for i in rows] for texts in (hypotheses, *streams)]
    return bleu(parts[0], parts[1:], lowercase, tokenize, hints=False).value


def _reference_streams(hypotheses, references):
    """Returns `references` as a list of lists, each as long as `hypotheses`."""
    if len(hypotheses) == 0:
        raise InputError(
            "Expected at least one hypothesis to score. Received: 0 lines. "
            "Check that the file or list of translations is not empty."
        )
    if len(references) == 0 or isinstance(references[0], str):
        references = [references]
    for number, stream in enumerate(references, start=1):
        if len(stream) != len(hypotheses):
            raise InputError(
                "Expected as many reference lines as hypotheses. Received: "
                f"{len(hypotheses)} hypotheses, {len(stream)} lines in reference {number}. "
                "Line i of every file must belong to the same source sentence."
            )
    return [list(stream) for stream in references]


def _score(metric, hypotheses, references):
    result = metric.corpus_score(list(hypotheses), references)
    signature = str(metric.get_signature())
    return Score(result.name, result.score, signature, result.format(signature=signature))
