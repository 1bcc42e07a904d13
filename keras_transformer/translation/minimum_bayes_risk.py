"""The translation that is most like the others of a text, instead of the most probable one."""

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from keras_transformer.translation.base_translator import Translation


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
