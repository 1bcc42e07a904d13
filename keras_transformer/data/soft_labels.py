"""Labels drawn from the predictions of other models, for distillation."""

import zipfile

import numpy as np

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.types import Self, StrPath


class SoftLabels:
    """The most probable labels of each target token, from which one is drawn in every epoch.

    The loss of a label that is drawn from a distribution is, on average, the cross-entropy against
    that distribution (Hinton et al., 2015, https://arxiv.org/abs/1503.02531). So a model learns the
    distribution, by the same loss as other labels and without an array of probabilities.

    Args:
        ids: int32 `(N, K)`, the K most probable labels of each of N target tokens.
        cumulative: float32 `(N, K)`, the probability of a label and of all before it.
        share: probability with which a label is drawn; otherwise the text's own is taken.
    """

    def __init__(self, ids: np.ndarray, cumulative: np.ndarray, share: float) -> None:
        self.ids = ids
        self.cumulative = cumulative
        self.share = share

    @classmethod
    def of(cls, ids: np.ndarray, probabilities: np.ndarray, share: float) -> Self:
        """Returns labels with probabilities `(N, K)`; those of a token are divided by their sum."""
        cumulative = np.cumsum(probabilities, axis=1, dtype="float32")
        return cls(ids, cumulative / cumulative[:, -1:], share)

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns int32 `(N,)`: drawn labels and, of the others, the text's own `labels` `(N,)`."""
        thresholds = rng.random((len(labels), 1), dtype="float32")
        place = np.argmax(thresholds < self.cumulative, axis=1)
        drawn = np.take_along_axis(self.ids, place[:, None], axis=1)[:, 0]
        return np.where(rng.random(len(labels)) < self.share, drawn, labels)

    def save(self, path: StrPath) -> None:
        """Writes the labels and their probabilities to a NumPy file, whole or not at all."""
        with replacing(path) as partial:
            np.savez(partial, ids=self.ids, cumulative=self.cumulative)

    @classmethod
    def load(cls, path: StrPath, num_tokens: int, share: float) -> Self:
        """Returns what `save` has written.

        Raises:
            InputError: the file is damaged, or not of `num_tokens` target tokens.
        """
        try:
            with np.load(path) as arrays:
                ids, cumulative = arrays["ids"], arrays["cumulative"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"Expected labels that distillation has written. Received: {path} ({error}). "
                "Remove it: the runs in distill_from then predict them again."
            ) from None
        if ids.shape != cumulative.shape or len(ids) != num_tokens:
            raise InputError(
                f"Expected labels of {num_tokens:,} target tokens, those of the training text. "
                f"Received: {path}, of {len(ids):,}. Give the text that the run began with."
            )
        return cls(ids, cumulative, share)
