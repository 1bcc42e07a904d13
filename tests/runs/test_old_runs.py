"""A run that an earlier version has trained loads, translates as it did then, and goes on.

`run_before_stacks.tar.gz` is that run, made by commit cc995c9, with separate embeddings, learned
positions and an output layer of its own. Its `answers.json` has what that version answered, and the
logits after six more steps of training.
"""

import json
import pathlib
import tarfile

import numpy as np
import pytest
from keras import ops

import keras_transformer
from keras_transformer.data import ParallelCorpus
from keras_transformer.runs import Run, load_run
from keras_transformer.training import train

ARCHIVE = pathlib.Path(__file__).with_name("run_before_stacks.tar.gz")
BATCH = {"source_ids": np.array([[5, 6, 3, 0]]), "target_ids": np.array([[2, 7, 9]])}


@pytest.fixture
def run(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "run"


@pytest.fixture
def answers(run):
    return json.loads((run / "answers.json").read_text(encoding="utf-8"))


@pytest.fixture
def corpora(answers):
    pairs = answers["pairs"]
    return ParallelCorpus.from_pairs(pairs[:14]), ParallelCorpus.from_pairs(pairs[14:])


@pytest.mark.parametrize("checkpoint", ["best", "last", "averaged"])
def test_it_answers_as_it_did(run, answers, corpora, checkpoint):
    translator = keras_transformer.load(run, checkpoint)
    expected, valid = answers[checkpoint], corpora[1]
    logits = ops.convert_to_numpy(translator.model(BATCH))
    np.testing.assert_allclose(logits, expected["logits"], rtol=1e-5, atol=1e-5)
    translations = translator.translate(valid.source)
    for (found,), before in zip(translations, expected["translations"], strict=True):
        assert (found.text, found.truncated) == (before["text"], before["truncated"])
        assert found.score == pytest.approx(before["score"], abs=1e-5)
    scores = translator.score(valid.source, valid.target)
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_it_goes_on_with_the_optimizer_that_it_had(run, answers, corpora):
    config = Run(run).load_config()
    assert config.training.schedule == "noam"  # which was called paper
    train(config.override(["training.max_steps=66"]), run, corpora=corpora)
    model, *_ = load_run(run, "last")
    expected = answers["after_6_more_steps"]["logits"]
    np.testing.assert_allclose(ops.convert_to_numpy(model(BATCH)), expected, rtol=1e-3, atol=1e-3)
