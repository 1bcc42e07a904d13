"""An export of the translator of the pairs, read back into Python."""

import contextlib

import numpy as np
import pytest

from keras_transformer.export import ctranslate2_model, generation, hugging_face, saved_model
from keras_transformer.export.signatures import Signatures
from keras_transformer.export.verification import Verification
from keras_transformer.tokenizers import SentencePieceTokenizer


@pytest.fixture(scope="session")
def signatures(exported_translator):
    """The signatures of the export, as functions of tensors."""
    return exported_translator.signatures


@pytest.fixture(scope="session")
def other_tokenizer(sentence_pairs):
    """A tokenizer of the targets alone, with another number of tokens."""
    return SentencePieceTokenizer.train([target for _, target in sentence_pairs], vocab_size=120)


@pytest.fixture(scope="session")
def randomize():
    """A function that draws all matrices of a model, so that outputs differ, and some end."""

    def randomize(model, seed):
        rng = np.random.default_rng(seed)
        weights = model.get_weights()
        model.set_weights([w if w.ndim == 1 else rng.normal(0, 0.7, w.shape) for w in weights])

    return randomize


@pytest.fixture(scope="session")
def unverified():
    """A context without verification: for tests that compare the answers of an export themselves.

    What is verified in a fresh process are the exports `exported` and `exported_ctranslate2`, and
    one of a text generator and of Hugging Face's files. The argument names the signatures that an
    export has; without it, it has all.
    """
    functions = Signatures.functions

    @contextlib.contextmanager
    def unverified(*names):
        def named(self):
            return {name: each for name, each in functions(self).items() if name in names}

        with pytest.MonkeyPatch.context() as patch:
            if names:
                patch.setattr(Signatures, "functions", named)
            for module, name in (
                (saved_model, "verify"),
                (generation, "verify_function"),
                (hugging_face, "verify_greedy"),
                (ctranslate2_model, "verify_greedy"),
            ):
                patch.setattr(module, name, lambda *_: Verification(1, 0))
            yield

    return unverified
