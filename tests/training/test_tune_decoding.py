"""`tune_decoding`: it reports what the run then does, and changes nothing else."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import keras_transformer
from keras_transformer.config import Config
from keras_transformer.data import ParallelCorpus
from keras_transformer.runs.run import Run
from keras_transformer.training import tune_decoding
from keras_transformer.translation.evaluation import bleu


@pytest.fixture(autouse=True)
def eager_searches():
    """To compile a search takes longer than it does here."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def path(trained, tmp_path):
    return shutil.copytree(trained[1], tmp_path / "run")


def test_the_run_then_translates_with_the_best_search(path, validated):
    before, lines = Config.load(path / "config.yaml"), []
    tuned = tune_decoding(path, None, (2, 1), (0.0, 2.0), write=lines.append)
    after = Config.load(path / "config.yaml")
    assert after == dataclasses.replace(before, decoding=tuned.decoding)
    assert "4 searches" in lines[0] and len(lines) == 5  # one beam of 1, and the run's own

    scores = {}
    for decoding in ({}, {"beam_size": 1}, {"beam_size": 2, "length_penalty": 2.0}):
        translations = keras_transformer.load(path, **decoding)(validated.source)
        scores[str(decoding)] = bleu(translations, validated.target, hints=False).value
    assert tuned.bleu == scores["{}"] == max(scores.values())
    assert tuned.bleu >= tuned.bleu_before


def test_the_smallest_beam_wins_where_scores_are_equal(path):
    """All BLEU is 0 of text that the model cannot know."""
    corpus = ParallelCorpus.from_pairs([("x", "y z w v"), ("w", "u u u u")])
    tuned = tune_decoding(path, corpus, (3, 2, 1), (0.0,), write=lambda line: None)
    assert (tuned.decoding.beam_size, tuned.bleu) == (1, 0.0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(beam_sizes=(0,)), "beam_size=0"),
        (dict(beam_sizes=()), "at least one beam size"),
        (dict(length_penalties=(-1.0,)), "length_penalty=-1.0"),
        (dict(tokenize="none such"), "tokenize='none such'"),
        (dict(checkpoint="first"), "checkpoint='first'"),
    ],
)
def test_bad_values_change_nothing(path, corpus, arguments, message):
    before = (path / "config.yaml").read_bytes()
    with pytest.raises(ValueError, match=message):
        tune_decoding(path, corpus, write=lambda line: None, **arguments)
    assert (path / "config.yaml").read_bytes() == before


def test_the_bleu_is_that_of_the_run_unless_another_is_asked_for(path, validated):
    settings = ["training.bleu_tokenizer=char", "decoding.beam_size=1"]  # one search to compare
    Config.load(path / "config.yaml").override(settings).save(path / "config.yaml")
    translations = keras_transformer.load(path)(validated.source)
    scores = {
        name: bleu(translations, validated.target, tokenize=name, hints=False).value
        for name in ("char", "13a")
    }
    assert scores["char"] != scores["13a"]
    for asked, name in ((None, "char"), ("13a", "13a")):
        tuned = tune_decoding(path, validated, (1,), tokenize=asked, write=lambda line: None)
        assert tuned.bleu == tuned.bleu_before == scores[name]


def test_a_run_that_is_being_trained_is_refused(path, corpus):
    with Run(path).locked(), pytest.raises(ValueError, match="another process is training"):
        tune_decoding(path, corpus)


def test_validation_text_that_is_gone(path, trained):
    config = Config.load(path / "config.yaml").override(["data.valid=[{tsv: gone.tsv}]"])
    config.save(path / "config.yaml")
    with pytest.raises(ValueError, match="gone.tsv.* Give other parallel text"):
        tune_decoding(path)


def test_only_the_validation_text_is_read(path, monkeypatch):
    config = Config.load(path / "config.yaml")
    config.override(["data.train=[{tsv: gone.tsv}]"]).save(path / "config.yaml")
    tune_decoding(path, beam_sizes=(1,), write=lambda line: None)


def test_text_that_the_run_may_have_learned_is_refused(path, trained, tmp_path):
    """As held-out pairs are, once pairs were added to the training text."""
    config, _ = trained
    corpus = {}
    for name in ("source", "target"):
        text = Path(getattr(config.data.valid[0], name)).read_text(encoding="utf-8")
        corpus[name] = tmp_path / name
        corpus[name].write_text(text + "one more\n", encoding="utf-8")
    changed = Config.load(path / "config.yaml").merged({"data": {"valid": [corpus]}})
    changed.save(path / "config.yaml")
    with pytest.raises(
        ValueError, match="validation text of the run. Received: other.* Give other"
    ):
        tune_decoding(path, write=lambda line: None)
    assert Config.load(path / "config.yaml") == changed


def test_no_run(tmp_path):
    with pytest.raises(ValueError, match="Expected a run directory"):
        tune_decoding(tmp_path / "none")
    assert not (tmp_path / "none").exists()
