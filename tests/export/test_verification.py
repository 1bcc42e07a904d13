"""The proof of an export must fail where the export is wrong."""

import keras
import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.export.verification import ExportError, _is_near_tie, verify
from keras_transformer.translator import Translation, Translator


def test_export_of_another_search_is_not_proven(exported, translator):
    decoding = DecodingConfig(beam_size=3, max_length=60, max_source_length=50, length_penalty=0.0)
    other = Translator(translator.model, translator.tokenizer, decoding=decoding)
    with pytest.raises(ExportError, match="(?s)as the translator does.*Expected.*Received"):
        verify(exported, other)


def test_export_that_tracks_the_keras_model_is_not_proven(translator, tmp_path):
    """Python reads such a SavedModel back; a server does not find the variables."""
    dense = keras.layers.Dense(1)
    dense.build((None, 1))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(text):
        score = dense(tf.zeros([tf.size(text), 1]))[:, 0]
        return {"translation": text, "score": score, "truncated": score > 1.0}

    tracked = tf.Module()
    tracked.layer = dense
    tf.saved_model.save(tracked, tmp_path, signatures=serve)
    tf.saved_model.load(tmp_path).signatures["serving_default"](text=tf.constant(["A dog."]))
    with pytest.raises(ExportError, match="Could not find variable"):
        verify(tmp_path, translator)


def test_export_that_needs_xla_is_not_proven(translator, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(text):
        score = tf.function(lambda x: 2.0 * x, jit_compile=True)(tf.zeros([tf.size(text)]))
        return {"translation": text, "score": score, "truncated": score > 1.0}

    tf.saved_model.save(tf.Module(), tmp_path, signatures=serve)
    with pytest.raises(ExportError, match="Expected a graph without XLA"):
        verify(tmp_path, translator)


def test_near_ties_are_told_from_errors():
    expected = Translation("Ein Hund.", -1.25, False)
    assert not _is_near_tie(b"", expected, ["Ein Hund.", -1.25, False])
    assert not _is_near_tie(b"", expected, ["Ein Hund.", -1.2501, False])
    assert _is_near_tie(b"", expected, ["Der Hund.", -1.250001, False])
    for wrong in (
        ["Der Hund.", -1.2501, False],
        ["Ein Hund.", -1.26, False],
        ["Ein Hund.", -1.25, True],
    ):
        with pytest.raises(ExportError, match="Expected.*Received"):
            _is_near_tie(b"", expected, wrong)
