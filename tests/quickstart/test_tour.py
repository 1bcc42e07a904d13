"""The tour with few sentences and steps; whole, it takes minutes and is marked slow."""

import contextlib
import dataclasses
import io
import re
import shutil

import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig, TokenizerConfig
from keras_transformer.quickstart import tour
from keras_transformer.quickstart.phrases import phrase_corpus
from keras_transformer.translation.evaluation import bleu

NUM_SENTENCES = 600
KNOWN_SENTENCES = ("A dog runs.", "A cat sleeps.", "A man reads a book.")
"""Sentences that the translator has learned, in the place of `tour.NEW_SENTENCES`."""
SHORT = dataclasses.replace(
    tour.CONFIG,
    tokenizer=TokenizerConfig(vocab_size=150),
    model={"num_layers": 1, "d_model": 8, "ff_dim": 12, "num_heads": 2, "dropout": 0.0},
    training=dataclasses.replace(
        tour.CONFIG.training, batch_tokens=200, max_steps=2, checkpoint_every=1
    ),
    decoding=DecodingConfig(beam_size=1, max_length=4),
)


def short_tour(output, forking, **replaced):
    """Returns what the tour returns and what it prints.

    It trains for two steps, eagerly, and translates with the export in a fork.

    Args:
        replaced: other functions for those that the tour calls.
    """

    def train_eagerly(*arguments, train=tour.train, **keywords):
        tf.config.run_functions_eagerly(True)
        train(*arguments, **keywords)
        tf.config.run_functions_eagerly(False)

    with forking(tour), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tour, "NEW_SENTENCES", KNOWN_SENTENCES)
        for name, function in {"train": train_eagerly, **replaced}.items():
            patch.setattr(tour, name, function)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            result = tour.run(output, SHORT, NUM_SENTENCES)
    return result, printed.getvalue()


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("quickstart") / "not" / "there yet"


@pytest.fixture(scope="module")
def first(output, forking, translator, exported, first_checks):
    """The tour goes on with a translator that has learned, and a copy of its export."""

    def load(path, load=tour.load):
        assert load(path).decoding == SHORT.decoding
        return translator

    def export(exports, path):
        assert exports is translator
        return shutil.copytree(exported, path / "1")

    return short_tour(output, forking, load=load, export_saved_model=export)


def test_the_files_are_written_and_named(first, output):
    _, printed = first
    for name in ("learning_curves.png", "attention.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG\r\n")
        assert str(output / name) in printed
    assert (output / "run" / "averaged.weights.h5").is_file()
    assert (output / "export" / "1" / "saved_model.pb").is_file()
    assert str(output / "export" / "1") in printed


def test_the_fresh_process_translates_as_the_model_does(first, translator):
    result, printed = first
    assert result.answers == translator(list(KNOWN_SENTENCES))
    assert len(set(result.answers)) == len(KNOWN_SENTENCES)  # not the same for all
    for row in zip(KNOWN_SENTENCES, result.answers, strict=True):
        assert "source       {}\ntranslation  {}\n".format(*row) in printed


def test_test_sentences_are_scored_and_shown_beside_their_references(first, translator):
    result, printed = first
    splits = phrase_corpus(NUM_SENTENCES)
    sources, references = (list(side) for side in zip(*splits.test, strict=True))
    translations = translator(sources)
    assert 0 < result.bleu == pytest.approx(bleu(translations, references).value)
    assert f"{len(sources)}: {result.bleu:.1f} (" in printed
    blocks = [
        "source       {}\ntranslation  {}\nreference    {}\n".format(*row)
        for row in zip(sources, translations, references, strict=True)
    ]
    assert [block in printed for block in blocks] == [i < 12 for i in range(len(blocks))]


def test_each_validation_is_shown(first):
    _, printed = first
    report = printed.split("2. Training")[1].split("3. Translations")[0]
    scored = [line for line in report.splitlines() if re.search(r" \d+\.\d\d(  best)?$", line)]
    assert len(scored) == 4
    assert scored[0].split()[0] == "1" and scored[1].split()[0] == "2"
    assert scored[2].startswith("best checkpoint ") and scored[3].startswith("mean of 2 ")


@pytest.mark.slow
def test_a_second_tour_keeps_the_run_and_exports_the_next_version(first, output, forking):
    weights = output / "run" / "averaged.weights.h5"
    before = weights.read_bytes()
    result, printed = short_tour(output, forking)
    assert len(result.answers) == len(KNOWN_SENTENCES)
    assert weights.read_bytes() == before
    assert "has ended at step 2" in printed
    assert str(output / "export" / "2") in printed
    assert (output / "export" / "1" / "saved_model.pb").is_file()


def test_an_export_that_fails_in_the_fresh_process_is_an_error(first, output, forking, translator):
    nowhere = output / "nowhere"
    replaced = dict(load=lambda _: translator, export_saved_model=lambda *_: nowhere)
    replaced |= dict(learning_curves=lambda *_: None, attention_maps=lambda *_: None)
    with pytest.raises(RuntimeError, match="fails in a fresh process.*nowhere: no such directory"):
        short_tour(output, forking, **replaced)


def test_the_new_sentences_are_new_but_their_words_are_not():
    splits = phrase_corpus(tour.NUM_SENTENCES)
    known = {word for source, _ in splits.train for word in source.split()}
    for sentence in tour.NEW_SENTENCES:
        assert sentence not in dict(splits.train)
        assert set(sentence.split()) <= known


@pytest.mark.slow
def test_held_out_sentences_reach_bleu_95(tmp_path):
    assert tour.run(tmp_path).bleu >= 95
