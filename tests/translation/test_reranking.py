"""The choice between translations: by a model of the other direction, and between samples."""

import itertools

import numpy as np
import pytest
import sacrebleu

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.errors import InputError
from keras_transformer.translation.base_translator import BaseTranslator, Translation
from keras_transformer.translation.reranking import RerankingTranslator, least_risk

TEXTS = ["a", "b", "", "c"]


class Numbered(BaseTranslator):
    """Finds "a1" to "a4" for "a", each scored at random; one translation of a blank text."""

    def __init__(self, n_best=4):
        self.n_best, self.decoding = n_best, DecodingConfig()
        draw = np.random.default_rng(3)
        self.scores = {f"{text}{n}": -draw.random() for text in "abc" for n in range(n_best)}

    def _submit(self, n_best, terms, submit, texts, prefixes):
        answers = [
            [Translation(f"{text}{n}", self.scores[f"{text}{n}"], n == 2) for n in range(n_best)]
            if text
            else [Translation("", 0.0, False)]
            for text in texts
        ]
        return lambda: answers

    def _have_unknown(self, texts):
        return [text == "b" for text in texts]

    def checksum(self):
        return "of numbers"

    def _limit_of_n_best(self):
        return f"n_best={self.n_best}. Raise it."


class Reverse:
    """Gives each text a score after its translation, but none after `blank`; others are -9."""

    def __init__(self, blank=""):
        draw = np.random.default_rng(5)
        self.scores = {f"{text}{n}": -draw.random() for text in "abc" for n in range(4)}
        self.blank, self.num_scored = blank, 0

    def score(self, sources, targets):
        self.num_scored += len(sources)
        pairs = zip(sources, targets, strict=True)
        found = [self.scores[s] if s in self.scores and t == s[0] else -9.0 for s, t in pairs]
        return np.where(np.array(sources) == self.blank, 0.0, found)

    def checksum(self):
        return "of the other"


def test_translations_are_in_the_order_of_both_scores():
    search, reverse = Numbered(), Reverse(blank="b1")
    reranked = RerankingTranslator(search, reverse)
    (whole,) = reranked.translate_chunks([TEXTS], 4)
    for text, answers in zip(TEXTS, whole, strict=True):
        if not text:
            assert answers == [Translation("", 0.0, False)]
            continue
        sums = {
            name: search.scores[name] + (reverse.scores[name] if name != "b1" else IMPOSSIBLE)
            for name in search.scores
            if name[0] == text
        }
        assert [answer.text for answer in answers] == sorted(sums, key=sums.get, reverse=True)
        assert [answer.score for answer in answers] == [sums[answer.text] for answer in answers]
        assert all(answer.truncated == (answer.text[1] == "2") for answer in answers)
    assert whole[1][-1].text == "b1"
    best = itertools.chain(*reranked.translate_chunks([TEXTS[:1], TEXTS[1:]]))
    assert [answer.text for (answer,) in best] == [each[0].text for each in whole]
    assert [each[0].text for each in whole] != [f"{text}0" if text else "" for text in TEXTS]
    assert reranked.unknown_characters(["a", "b"]) == ["", "b"]


def test_a_model_of_the_same_direction_is_refused():
    class Same(Reverse):
        def score(self, sources, targets):
            return super().score(targets, sources)

    with pytest.raises(InputError, match="Expected a model of the other direction .* exchanged"):
        RerankingTranslator(Numbered(), Same()).translate(TEXTS)
    reverse = Reverse()
    reranked = RerankingTranslator(Numbered(), reverse)
    assert reranked.translate(["", ""]) == [[Translation("", 0.0, False)]] * 2
    reranked.translate(TEXTS)
    assert reverse.num_scored == 12 + 2 * 3  # the best of each text, in both directions
    reranked.translate(TEXTS)  # is not looked at again
    assert reverse.num_scored == 12 + 2 * 3 + 12


def test_one_odd_text_does_not_refuse_a_model():
    reverse = Reverse()
    reverse.scores["a0"] = -1000.0
    RerankingTranslator(Numbered(), reverse).translate(TEXTS)


def test_there_must_be_a_choice():
    with pytest.raises(InputError, match="Expected a search for several .* n_best=1. Raise it"):
        RerankingTranslator(Numbered(1), Reverse())


DRAWN = ["Ein Hund rennt.", "Der Hund rennt.", "Zwei Katzen", "Ein Hund rennt.", "Ein Hund läuft."]


def test_the_least_risk_has_the_highest_mean_chrf_to_all_samples():
    samples = [Translation(text, -float(i), i == 0) for i, text in enumerate(DRAWN)]
    found = least_risk(samples)
    means = {
        text: sum(sacrebleu.sentence_chrf(text, [other]).score for other in DRAWN) / len(DRAWN)
        for text in DRAWN
    }
    assert found.text == max(means, key=means.get) == "Ein Hund rennt."
    assert found.score == pytest.approx(max(means.values())) and found.truncated
    assert least_risk(samples[2:3]) == ("Zwei Katzen", 100.0, False)
    assert least_risk([Translation("", 0.0, False)] * 3).text == ""
