"""An export of the translator of the pairs, read back into Python."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def signatures(exported_translator):
    """The signatures of the export, as functions of tensors."""
    return exported_translator.signatures


@pytest.fixture(scope="session")
def randomize():
    """A function that draws all matrices of a model, so that outputs differ, and some end."""

    def randomize(model, seed):
        rng = np.random.default_rng(seed)
        weights = model.get_weights()
        model.set_weights([w if w.ndim == 1 else rng.normal(0, 0.7, w.shape) for w in weights])

    return randomize
