"""Corpus scores of translations by sacreBLEU, each with the signature of how it was computed.

>>> score = bleu(["Ein Hund rennt."], ["Ein Hund läuft."])
>>> score.value, score.signature
"""

import typing

from sacrebleu.metrics import BLEU, CHRF


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


def bleu(hypotheses, references, lowercase=False, tokenize="13a", hints=True):
    """Returns corpus BLEU (Papineni et al., 2002, https://aclanthology.org/P02-1040).

    Args:
        hypotheses: list of str, the translations.
        references: list of str, or a list of such lists where there are several references, each
            as long as `hypotheses`.
        lowercase: whether both sides are lowercased first.
        tokenize: name of a sacreBLEU tokenizer; `"none"` for text that is tokenized already.
        hints: whether sacreBLEU says on standard error that text looks tokenized already.
    Raises:
        ValueError: for unequal line counts, no lines at all, an unknown tokenizer, or one whose
            packages or model file are not there.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(
            f"`tokenize` must name a sacreBLEU tokenizer. Received: tokenize={tokenize!r}. "
            f"Choose one of {', '.join(BLEU.TOKENIZERS)}."
        )
    references = _reference_streams(hypotheses, references)
    try:
        quiet = tokenize == "none" or not hints
        metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=quiet)
    # SystemExit is how sacreBLEU reports a download that failed on its certificate
    except (ImportError, OSError, RuntimeError, SystemExit) as error:
        raise ValueError(
            f"The sacreBLEU tokenizer {tokenize!r} needs an extra package or a downloaded model "
            f"that is not there ({' '.join(str(error).split())}). Received: tokenize={tokenize!r}. "
            "Install what it names, or choose another tokenizer."
        ) from error
    return _score(metric, hypotheses, references)


def chrf(hypotheses, references, lowercase=False):
    """Returns corpus chrF2, character 6-grams with beta 2 (Popović, 2015, https://aclanthology.org/W15-3049).

    Arguments and errors are those of `bleu`; there is no tokenizer because characters need none.
    """
    references = _reference_streams(hypotheses, references)
    return _score(CHRF(lowercase=lowercase), hypotheses, references)


def _reference_streams(hypotheses, references):
    """Returns `references` as a list of lists, each as long as `hypotheses`."""
    if len(hypotheses) == 0:
        raise ValueError(
            "Expected at least one hypothesis to score. Received: 0 lines. "
            "Check that the file or list of translations is not empty."
        )
    if len(references) == 0 or isinstance(references[0], str):
        references = [references]
    for number, stream in enumerate(references, start=1):
        if len(stream) != len(hypotheses):
            raise ValueError(
                "Expected as many reference lines as hypotheses. Received: "
                f"{len(hypotheses)} hypotheses, {len(stream)} lines in reference {number}. "
                "Line i of every file must belong to the same source sentence."
            )
    return [list(stream) for stream in references]


def _score(metric, hypotheses, references):
    result = metric.corpus_score(list(hypotheses), references)
    signature = str(metric.get_signature())
    return Score(result.name, result.score, signature, result.format(signature=signature))
