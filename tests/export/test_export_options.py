"""One export with every option: int8 weights, shortlists, processors, and texts split."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.decoding import MinLength
from keras_transformer.export import export_saved_model, saved_model, verification
from keras_transformer.export.exportable import with_model
from keras_transformer.export.quantized_weights import QuantizedWeights
from keras_transformer.export.serving_session import xla_in
from keras_transformer.export.verification import Verification
from keras_transformer.special_ids import END_ID
from keras_transformer.translation import loading
from keras_transformer.translation.lexicon import Lexicon
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator

SHORTLIST = 4


@pytest.fixture(scope="module")
def shortlisted(translator, corpus, tokenizer):
    """The translator of the pairs, with shortlists that lack some words."""
    sides = corpus.source[::2], corpus.target[::2]
    rows = [[row.numpy() for row in tokenizer.encode(side)] for side in sides]
    lexicon = Lexicon.learn(*rows, tokenizer.vocab_size)
    lexicon = lexicon._replace(frequent=lexicon.frequent[:20])
    decoding = dataclasses.replace(translator.decoding, shortlist=SHORTLIST, no_repeat_ngram=2)
    search = dict(decoding=decoding, lexicon=lexicon, processors=[MinLength(4, END_ID)])
    return Translator(translator.model, tokenizer, **search)


@pytest.fixture(scope="module")
def rounded(shortlisted):
    """What the export must translate as: the same with rounded weights."""
    model = QuantizedWeights(shortlisted.model, "int8").model
    return with_model(shortlisted, model)


@pytest.fixture(scope="module")
def made(shortlisted, tmp_path_factory, unverified):
    """The path of the export, and what `verify` was asked."""
    asked, names = [], ("serving_default", "constrained", "attention", "score")
    with unverified(*names), pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "verify", lambda *_: asked.extend(_) or Verification(1, 0))
        path = export_saved_model(
            shortlisted,
            tmp_path_factory.mktemp("options"),
            split_sentences=True,
            weights="int8",
        )
    return path, asked


@pytest.fixture(scope="module")
def path(made):
    return made[0]


@pytest.fixture(scope="module")
def read_back(path):
    return load(path)


@pytest.fixture(scope="module")
def sentences(texts):
    """Texts of one sentence each."""
    return texts[:-1]


def test_it_translates_as_the_translator_does(read_back, rounded, translator, sentences):
    expected, found = rounded.translate(sentences), read_back.translate(sentences)
    for (ours,), (theirs,) in zip(found, expected, strict=True):
        assert ours._replace(score=0.0) == theirs._replace(score=0.0)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
    assert read_back(sentences) != translator(sentences)


def test_it_is_proved_sentence_by_sentence(made, read_back, monkeypatch):
    """With the answers of this process in the place of those of a fresh one."""

    def answers(_, batches):
        outputs = [read_back.signatures["serving_default"](text=tf.constant(b)) for b in batches]
        return [{key: tensor.numpy() for key, tensor in batch.items()} for batch in outputs]

    monkeypatch.setattr(verification, "_run_in_fresh_process", answers)
    assert verification.verify(*made[1]).num_texts == 64 + 7 + 8 + 7


def test_a_text_does_not_depend_on_its_neighbours(read_back, texts):
    some = texts[::4]
    assert [read_back(text) for text in some] == read_back(some)


def test_scores_and_attention_are_of_all_tokens_and_rounded_weights(read_back, rounded, sentences):
    sources = sentences[:10]
    served = read_back.signatures["serving_default"](text=tf.constant(sources))
    target = served["translation"]
    score = read_back.signatures["score"](text=tf.constant(sources), target=target)["score"]
    forced = rounded.score(sources, [text.decode() for text in target.numpy()])
    np.testing.assert_allclose(score, forced, atol=1e-4)
    assert np.all(score <= served["score"] + 1e-4)
    assert np.any(score < served["score"] - 1e-4)
    attention = read_back.signatures["attention"](text=tf.constant(sources[:1]))["weights"]
    expected = rounded.attention(sources[0]).weights["cross"]
    np.testing.assert_allclose(attention[0], expected, atol=1e-5)


def test_texts_without_prefix_and_terms_have_their_shortlist(read_back, rounded, sentences):
    sources, prefixes = sentences[:6], ["", "Der ", "", "", "", "Ein"]
    found = read_back.translate(sources, prefixes=prefixes)
    for (ours,), (theirs,) in zip(found, rounded.translate(sources, 1, prefixes), strict=True):
        assert ours.text == theirs.text and ours.score == pytest.approx(theirs.score, abs=1e-4)
    default = read_back.translate(sources[2:5])
    assert [best.text for (best,) in found[2:5]] == [best.text for (best,) in default]


def test_an_empty_batch_has_an_empty_answer(read_back):
    served = read_back.signatures["serving_default"](text=tf.constant([], tf.string))
    assert served["translation"].shape == (0,)


def test_the_settings_are_in_it_and_cannot_be_changed(path, read_back, monkeypatch):
    settings = json.loads((path / "assets.extra/keras_transformer.json").read_text())
    assert (settings["weights"], settings["split_sentences"]) == ("int8", True)
    assert read_back.settings == settings and read_back.decoding.shortlist == SHORTLIST
    monkeypatch.setattr(loading, "_load_version", lambda _: read_back)
    with pytest.raises(ValueError, match="shortlist=5, exported with shortlist=4"):
        load(path, shortlist=5)


def test_it_is_small_needs_no_xla_and_has_the_lexicon_once(path, exported, tokenizer):
    def num_bytes(path):
        return sum(file.stat().st_size for file in (path / "variables").iterdir())

    assert num_bytes(path) < 0.4 * num_bytes(exported)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    assert xla_in(saved.meta_graphs[0].graph_def) == []
    written = tf.train.list_variables(str(path / "variables" / "variables"))
    shapes = [tuple(shape) for _, shape in written]
    assert shapes.count((tokenizer.vocab_size, 1 + SHORTLIST)) == 1


def test_export_translates_sentence_by_sentence(read_back, rounded):
    text = "A dog runs. A cat sleeps.\nThe horse is brown."
    parts = rounded.translate(["A dog runs.", "A cat sleeps.", "The horse is brown."])
    (first,), (second,), (third,) = parts
    (found,), (nothing,) = read_back.translate([text, ""])
    assert found.text == f"{first.text} {second.text}\n{third.text}"
    assert abs(found.score - (first.score + second.score + third.score)) < 1e-4
    assert found.truncated == (first.truncated or second.truncated or third.truncated)
    assert nothing == ("", 0.0, False)


def test_long_text_is_not_cut_but_a_long_sentence_is(read_back):
    long_text, long_sentence = "A dog runs. " * 60, "a dog runs and " * 60
    (whole,), (cut,), (short,) = read_back.translate([long_text, long_sentence, "A dog runs."])
    assert not whole.truncated and whole.text == " ".join([short.text] * 60)
    assert cut.truncated and not short.truncated
