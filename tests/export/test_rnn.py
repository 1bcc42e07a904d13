"""A recurrent model from text files to an export, by the same commands as the Transformer."""

import numpy as np
import pytest
import tensorflow as tf

import keras_transformer
from keras_transformer.config import Config
from keras_transformer.data import ParallelCorpus
from keras_transformer.export import export_saved_model
from keras_transformer.export.signatures import Signatures
from keras_transformer.plots import attention_maps
from keras_transformer.training import train
from keras_transformer.translation.loading import load


@pytest.fixture
def run(corpus, sentence_pairs, tmp_path, eagerly):
    """A run of one step: it knows little, but its answers differ."""
    path = tmp_path / "rnn"
    config = Config.from_preset("rnn").override(
        [
            *("model.d_model=32", "model.units=24", "model.dropout=0.1"),
            *("training.max_steps=1", "training.checkpoint_every=1", "training.warmup_steps=1"),
            *("training.peak_learning_rate=0.02", "training.batch_tokens=100"),
            *("data.max_length=16", "tokenizer.vocab_size=150", "decoding.max_length=6"),
            "decoding.max_source_length=20",
        ]
    )
    corpora = corpus, ParallelCorpus.from_pairs(sentence_pairs[:2])
    metrics = train(config, path, corpora=corpora, write=lambda line: None)
    assert np.isfinite(metrics["val_loss"]) and 0 <= metrics["val_bleu"]
    return path


@pytest.mark.filterwarnings("ignore:The text or its translation reached a limit:UserWarning")
def test_from_a_run_to_an_export(run, corpus, tmp_path, unverified, eagerly):
    texts = [*corpus.source[:3], "", "zebra"]
    translator = keras_transformer.load(run, beam_size=2)
    expected = translator.translate(texts)
    attention_map = translator.attention(texts[2])
    assert set(attention_map.weights) == {"cross"}
    rows, columns = len(attention_map.target_pieces), len(attention_map.source_pieces)
    assert attention_map.weights["cross"].shape == (1, 1, rows, columns)
    attention_maps(attention_map, tmp_path / "alignment.png")
    assert translator.sample(texts, seed=1) == translator.sample(texts, seed=1)

    assert set(Signatures(translator).functions()) == {
        "serving_default", "n_best", "constrained", "attention", "forced_attention", "score",
        "explain", "encode", "decode",
    }  # fmt: skip
    with unverified("serving_default", "attention"):
        export_saved_model(translator, tmp_path / "export")
    exported = load(tmp_path / "export")
    found = exported.translate(texts)
    for ours, others in zip(found, expected, strict=True):
        assert [x.text for x in ours] == [x.text for x in others]
        np.testing.assert_allclose([x.score for x in ours], [x.score for x in others], atol=1e-4)
    weights = exported.signatures["attention"](text=tf.constant(texts[2:3]))["weights"][0]
    np.testing.assert_allclose(weights, attention_map.weights["cross"], atol=1e-5)
    for name, signature in exported.signatures.items():  # an empty batch
        specs = signature.structured_input_signature[1]
        empty = {key: tf.zeros([0] * spec.shape.rank, spec.dtype) for key, spec in specs.items()}
        assert {len(output) for output in signature(**empty).values()} == {0}, name


def test_a_model_without_attention_is_exported_without_its_signature(tokenizer, eagerly):
    model = keras_transformer.RnnSeq2Seq(tokenizer.vocab_size, d_model=8, units=6, attention=None)
    model.build()
    translator = keras_transformer.Translator(model, tokenizer)
    assert translator.attention("A dog runs.").weights == {}
    functions = Signatures(translator).functions()
    assert "attention" not in functions and "score" in functions
