"""Which of several translations of a text is the best, not by the probability of a model alone.

A search is ordered by a model of the other direction, too; of samples, the one is chosen that is
most like the others.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.errors import InputError
from keras_transformer.translation.base_translator import BaseTranslator, Translation, list_of_texts

if TYPE_CHECKING:
    from keras_transformer.translation.translator import Translator

NUM_CHECKED = 16
"""Texts by which it is seen in which direction a model translates."""


class RerankingTranslator(BaseTranslator):
    """Chooses between the translations of a search by how well they give the text back.

    The score of a translation is log P(translation | text) + log P(text | translation), each over
    its length penalty: the one that the search gave, and the one that the other model gives to the
    text. That is the noisy channel of Yee et al. (2019, section 2,
    https://aclanthology.org/D19-1571/) without its language model, and with weights that are equal,
    as in the reranking of Sennrich et al. (2016, https://aclanthology.org/W16-2323/).

    Args:
        translator: `Translator` or that of an export, with a beam of several hypotheses.
        reverse: `Translator` from the target to the source, with any tokenizer.
    Raises:
        ValueError: a search that finds one translation only; in a call, a `reverse` that
            translates in the same direction.

    Example:
        reranked = RerankingTranslator(translator, reverse)  # reverse = load("runs/de-en")
    """

    def __init__(self, translator: BaseTranslator, reverse: "Translator") -> None:
        if translator.n_best < 2:
            raise InputError(
                "Expected a search for several translations, to choose from. Received: "
                f"{translator._limit_of_n_best()}"
            )
        self.translator, self.reverse = translator, reverse
        self.decoding, self.n_best = translator.decoding, translator.n_best
        self.can_be_steered = translator.can_be_steered
        self._is_checked = False

    def _submit(self, n_best, terms, submit, texts, prefixes):
        texts = list_of_texts(texts)
        found = self.translator._submit(self.n_best, terms, submit, texts, prefixes)
        return lambda: [each[:n_best] for each in self._ordered(texts, found())]

    def _ordered(self, texts, answers):
        """Returns the translations of each text, the best first."""
        pairs = [
            (translation.text, text)
            for text, each in zip(texts, answers, strict=True)
            if len(each) > 1
            for translation in each
        ]
        translations, sources = ([side[i] for side in pairs] for i in (0, 1))
        best = [(each[0].text, text) for text, each in zip(texts, answers, strict=True) if each[1:]]
        self._check_direction(best[:NUM_CHECKED])
        scores = iter(self.reverse.score(translations, sources).tolist())
        ordered = []
        for each in answers:
            if len(each) > 1:
                # the model says nothing of a blank translation, whose score is 0
                backward = [next(scores) or IMPOSSIBLE for _ in each]
                each = [x._replace(score=x.score + y) for x, y in zip(each, backward, strict=True)]
                each.sort(key=lambda translation: -translation.score)
            ordered.append(each)
        return ordered

    def _check_direction(self, pairs):
        """Raises `InputError` if the other model would rather translate in the same direction."""
        if self._is_checked or not pairs:
            return
        translations, sources = map(list, zip(*pairs, strict=True))
        backward = self.reverse.score(translations, sources)
        if (backward < self.reverse.score(sources, translations)).mean() > 0.5:
            raise InputError(
                "Expected a model of the other direction for the reranking, from the target to the "
                "source. Received: one that finds the translations more probable, given the text, "
                "than the text. Train one with the two sides of the corpus exchanged."
            )
        self._is_checked = True

    def _explain(self, sources, targets):
        return self.translator._explain(sources, targets)

    def _have_unknown(self, texts):
        return self.translator._have_unknown(texts)

    def _threads(self):
        return self.translator._threads()

    def _limit_of_n_best(self):
        return self.translator._limit_of_n_best()

    def checksum(self) -> str:
        both = self.translator.checksum() + self.reverse.checksum()
        return hashlib.sha256(both.encode()).hexdigest()


def least_risk(samples: Sequence[Translation]) -> Translation:
    """Returns the sample with the highest mean chrF2 to all samples of a text.

    This is the decision by minimum Bayes risk, with samples for the distribution and chrF2 for the
    utility (Eikema and Aziz, 2020, section 6, https://aclanthology.org/2020.coling-main.398/). Its
    score is that mean, from 0 to 100, instead of a log-probability.

    Args:
        samples: translations of one text, at least one. A text that was drawn twice counts twice.
    """
    texts, counts = np.unique([sample.text for sample in samples], return_counts=True)
    metric = CHRF()
    utilities = [
        sum(
            count * (100.0 if text == other else metric.sentence_score(text, [other]).score)
            for other, count in zip(texts.tolist(), counts.tolist(), strict=True)
        )
        for text in texts.tolist()
    ]
    best = int(np.argmax(utilities))
    chosen = next(sample for sample in samples if sample.text == texts[best])
    return chosen._replace(score=utilities[best] / len(samples))
