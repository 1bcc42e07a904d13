"""Labels drawn from the predictions of other models, for distillation."""

import numpy as np


class SoftLabels:
    """The most probable labels of each target token, from which one is drawn in every epoch.

    The loss of a label that is drawn from a distribution is, on average, the cross-entropy against
    that distribution (Hinton et al., 2015, https://arxiv.org/abs/1503.02531). So a model learns the
    distribution, by the same loss as other labels and without an array of probabilities.

    Args:
        ids: int32 `(N, K)`, the K most probable labels of each of N target tokens.
        probabilities: `(N, K)`; those of a token are divided by their sum.
        share: probability with which the label is drawn; otherwise the text's own is taken.
    """

    def __init__(self, ids: np.ndarray, probabilities: np.ndarray, share: float) -> None:
        self.ids = ids
        self.share = share
        cumulated = np.cumsum(probabilities, axis=1, dtype="float32")
        self.cumulated = cumulated / cumulated[:, -1:]
        """`(N, K)`, the probability of a label and of all before it."""

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns int32 `(N,)`: drawn labels and, of the others, the text's own `labels` `(N,)`."""
        thresholds = rng.random((len(labels), 1), dtype="float32")
        place = np.argmax(thresholds < self.cumulated, axis=1)
        drawn = np.take_along_axis(self.ids, place[:, None], axis=1)[:, 0]
        return np.where(rng.random(len(labels)) < self.share, drawn, labels)
