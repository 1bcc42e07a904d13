"""An export whose search chooses from shortlists."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.export import export_saved_model
from keras_transformer.export.serving_session import xla_in
from keras_transformer.translation import loading
from keras_transformer.translation.lexicon import Lexicon
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator

SHORTLIST = 4


@pytest.fixture(scope="module")
def shortlisted(translator, corpus, tokenizer):
    """The translator of the pairs, with shortlists that lack some words."""
    texts = corpus.source[::2], corpus.target[::2]
    rows = [[row.numpy() for row in tokenizer.encode(side)] for side in texts]
    lexicon = Lexicon.learn(*rows, tokenizer.vocab_size)
    lexicon = lexicon._replace(frequent=lexicon.frequent[:20])
    decoding = dataclasses.replace(translator.decoding, shortlist=SHORTLIST)
    return Translator(translator.model, tokenizer, decoding=decoding, lexicon=lexicon)


@pytest.fixture(scope="module")
def exported(shortlisted, tmp_path_factory, unverified):
    with unverified():
        return export_saved_model(shortlisted, tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def read_back(exported):
    return load(exported)


def test_it_translates_as_the_translator_does(read_back, shortlisted, translator, texts):
    expected, found = shortlisted.translate(texts), read_back.translate(texts)
    for ours, theirs in zip(found, expected, strict=True):
        assert [t.text for t in ours] == [t.text for t in theirs]
        assert [t.score for t in ours] == pytest.approx([t.score for t in theirs], abs=1e-4)
    assert read_back(texts) != translator(texts)


def test_a_text_does_not_depend_on_its_neighbours(read_back, texts):
    together = read_back(texts)
    assert [read_back(text) for text in texts] == together


def test_score_is_of_all_tokens_and_a_search_of_the_shortlist(read_back, translator, texts):
    sources = texts[:10]
    served = read_back.signatures["serving_default"](text=tf.constant(sources))
    target = served["translation"]
    score = read_back.signatures["score"](text=tf.constant(sources), target=target)["score"]
    forced = translator.score(sources, [text.decode() for text in target.numpy()])
    np.testing.assert_allclose(score, forced, atol=1e-4)
    assert np.all(score <= served["score"] + 1e-4)
    assert np.any(score < served["score"] - 1e-4)


def test_an_empty_batch_has_an_empty_answer(read_back):
    served = read_back.signatures["serving_default"](text=tf.constant([], tf.string))
    assert served["translation"].shape == (0,)


def test_the_setting_is_in_it_and_cannot_be_changed(exported, read_back, monkeypatch):
    assert read_back.decoding.shortlist == SHORTLIST
    monkeypatch.setattr(loading, "_load_version", lambda _: read_back)
    with pytest.raises(ValueError, match="shortlist=5, exported with shortlist=4"):
        load(exported, shortlist=5)


def test_graph_needs_no_xla_and_has_the_lexicon_once(exported, tokenizer):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((exported / "saved_model.pb").read_bytes())
    assert xla_in(saved.meta_graphs[0].graph_def) == []
    written = tf.train.list_variables(str(exported / "variables" / "variables"))
    shapes = [tuple(shape) for _, shape in written]
    assert shapes.count((tokenizer.vocab_size, 1 + SHORTLIST)) == 1
