"""The sample that is most like the others, against all pairs."""

import pytest
import sacrebleu

from keras_transformer.translation.base_translator import Translation
from keras_transformer.translation.minimum_bayes_risk import least_risk

TEXTS = ["Ein Hund rennt.", "Der Hund rennt.", "Zwei Katzen", "Ein Hund rennt.", "Ein Hund läuft."]


def test_it_has_the_highest_mean_chrf_to_all_samples():
    samples = [Translation(text, -float(i), i == 0) for i, text in enumerate(TEXTS)]
    found = least_risk(samples)
    means = {
        text: sum(sacrebleu.sentence_chrf(text, [other]).score for other in TEXTS) / len(TEXTS)
        for text in TEXTS
    }
    assert found.text == max(means, key=means.get) == "Ein Hund rennt."
    assert found.score == pytest.approx(max(means.values())) and found.truncated
    assert least_risk(samples[2:3]) == ("Zwei Katzen", 100.0, False)
    assert least_risk([Translation("", 0.0, False)] * 3).text == ""
