"""Labels drawn from the predictions of other models, for distillation."""

import zipfile

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.types import Self, StrPath


class SoftLabels:
    """The most probable labels of each target token; one of them is drawn in every epoch.

    On average, the loss of a label drawn from a distribution is the cross-entropy against that
    distribution (Hinton et al., 2015, https://arxiv.org/abs/1503.02531). So a model learns the
    distribution with the usual loss, without an array of probabilities.

    Args:
        ids: int32 `(N, K)`, the K most probable labels of each of N target tokens.
        cumulative: float32 `(N, K)`, the probability of a label and of all before it.
        share: probability that a label is drawn; otherwise, the text's own label is used.
    """

    def __init__(self, ids: np.ndarray, cumulative: np.ndarray, share: float) -> None:
        self.ids = ids
        self.cumulative = cumulative
        self.share = share

    @classmethod
    def of(cls, ids: np.ndarray, probabilities: np.ndarray, share: float) -> Self:
        """Returns labels with probabilities `(N, K)`, normalized for each token."""
        cumulative = np.cumsum(probabilities, axis=1, dtype="float32")
        return cls(ids, cumulative / cumulative[:, -1:], share)

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns int32 `(N,)`: drawn labels, and the text's own `labels` `(N,)` for the others."""
        thresholds = rng.random((len(labels), 1), dtype="float32")
        place = np.argmax(thresholds < self.cumulative, axis=1)
        drawn = np.take_along_axis(self.ids, place[:, None], axis=1)[:, 0]
        return np.where(rng.random(len(labels)) < self.share, drawn, labels)

    def save(self, path: StrPath) -> None:
        """Writes the labels and their probabilities to a NumPy file, atomically."""
        with replacing(path) as partial:
            np.savez(partial, ids=self.ids, cumulative=self.cumulative)

    @classmethod
    def load(cls, path: StrPath, num_tokens: int, share: float) -> Self:
        """Returns the labels that `save` wrote.

        Raises:
            InputError: the file is damaged, or does not have `num_tokens` target tokens.
        """
        try:
            with np.load(path) as arrays:
                ids, cumulative = arrays["ids"], arrays["cumulative"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"Expected labels that distillation wrote. Received: {path} ({error}). "
                "Remove it: the runs in distill_from then predict them again."
            ) from None
        if ids.shape != cumulative.shape or len(ids) != num_tokens:
            raise InputError(
                f"Expected labels of the {num_tokens:,} target tokens of the training text. "
                f"Received: {path}, with {len(ids):,}. Use the text that the run began with."
            )
        return cls(ids, cumulative, share)
