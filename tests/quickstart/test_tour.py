"""The tour with few sentences and steps; whole, it takes minutes and is marked slow."""

import contextlib
import dataclasses
import io
import re

import pytest

from keras_transformer.config import DecodingConfig, TokenizerConfig
from keras_transformer.export import saved_model
from keras_transformer.export.verification import Verification
from keras_transformer.quickstart import tour
from keras_transformer.quickstart.phrases import phrase_corpus
from keras_transformer.translation.evaluation import bleu

NUM_SENTENCES = 2000
SHORT = dataclasses.replace(
    tour.CONFIG,
    tokenizer=TokenizerConfig(vocab_size=900),
    model={"num_layers": 1, "d_model": 48, "ff_dim": 40, "num_heads": 4, "dropout": 0.0},
    training=dataclasses.replace(
        tour.CONFIG.training,
        batch_tokens=500,
        peak_learning_rate=0.01,
        warmup_steps=50,
        max_steps=160,
        checkpoint_every=80,
    ),
    decoding=DecodingConfig(beam_size=1, max_length=20),
)


def short_tour(output, forking, **replaced):
    """Returns what the tour returns, what it prints, and the translator that it has loaded.

    `replaced` are other functions for those that the tour calls. The export is not verified: that
    is tested in tests/export, and the tour translates with it in a process of its own, here a fork.
    """
    loaded = []
    replaced.setdefault("load", lambda path, load=tour.load: loaded.append(load(path)) or loaded[0])
    with forking(tour), pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "verify", lambda *_: Verification(1, 0))
        for name, function in replaced.items():
            patch.setattr(tour, name, function)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            result = tour.run(output, SHORT, NUM_SENTENCES)
    return result, printed.getvalue(), *loaded


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("quickstart") / "not" / "there yet"


@pytest.fixture(scope="module")
def first(output, forking):
    return short_tour(output, forking)


def test_the_files_are_written_and_named(first, output):
    _, printed, _ = first
    for name in ("learning_curves.png", "attention.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG\r\n")
        assert str(output / name) in printed
    assert (output / "run" / "averaged.weights.h5").is_file()
    assert (output / "export" / "1" / "saved_model.pb").is_file()
    assert str(output / "export" / "1") in printed


def test_the_fresh_process_translates_as_the_model_does(first):
    result, printed, translator = first
    assert result.answers == translator(list(tour.NEW_SENTENCES))
    assert len(set(result.answers)) == len(tour.NEW_SENTENCES)  # not the same for all
    for row in zip(tour.NEW_SENTENCES, result.answers, strict=True):
        assert "source       {}\ntranslation  {}\n".format(*row) in printed


def test_test_sentences_are_scored_and_shown_beside_their_references(first):
    result, printed, translator = first
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
    _, printed, _ = first
    report = printed.split("2. Training")[1].split("3. Translations")[0]
    scored = [line for line in report.splitlines() if re.search(r"val_bleu +\d", line)]
    assert len(scored) == 4
    assert re.search("step +80 ", scored[0]) and re.search("step +160 ", scored[1])
    assert scored[2].startswith("best checkpoint ") and scored[3].startswith("mean of 2 ")


@pytest.mark.slow
def test_a_second_tour_keeps_the_run_and_exports_the_next_version(first, output, forking):
    weights = output / "run" / "averaged.weights.h5"
    before = weights.read_bytes()
    result, printed, _ = short_tour(output, forking)
    assert result == first[0]
    assert weights.read_bytes() == before
    assert "has ended at step 160" in printed
    assert str(output / "export" / "2") in printed
    assert (output / "export" / "1" / "saved_model.pb").is_file()


def test_an_export_that_fails_in_the_fresh_process_is_an_error(first, output, forking):
    nowhere = output / "nowhere"
    replaced = dict(load=lambda _: first[2], export_saved_model=lambda *_: nowhere)
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
