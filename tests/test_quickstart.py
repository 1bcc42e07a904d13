"""The tour, cut short; whole, it takes minutes."""

import dataclasses
import re

import pytest

from keras_transformer import quickstart
from keras_transformer.config import TokenizerConfig, TrainingConfig
from keras_transformer.data.phrases import phrase_corpus
from keras_transformer.translator import Translator

PNG = b"\x89PNG\r\n\x1a\n"
SHORT = dataclasses.replace(
    quickstart.CONFIG,
    tokenizer=TokenizerConfig(vocab_size=300),
    model={"num_layers": 1, "d_model": 32, "ff_dim": 24, "num_heads": 2},
    training=TrainingConfig(batch_tokens=512, max_steps=20, checkpoint_every=10),
)


def short_tour(output):
    return quickstart.run(output, SHORT, num_sentences=700)


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("quickstart") / "new" / "directory"


@pytest.fixture(scope="module")
def tour(output):
    return short_tour(output)


@pytest.fixture(scope="module")
def said(output):
    """What the tour prints, made with its output captured by hand: `capsys` is a test's own."""
