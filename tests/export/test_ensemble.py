"""An ensemble becomes one SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.export import (
    export_ctranslate2,
    export_hugging_face,
    export_saved_model,
)
from keras_transformer.export.exportable import in_float32, with_model
from keras_transformer.export.quantized_weights import QuantizedWeights
from keras_transformer.models import Ensemble, RnnSeq2Seq, Transformer
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator


@pytest.fixture(scope="module")
def ensemble(translator, randomize):
    """The translator of the pairs, with a recurrent model beside its own."""
    other = RnnSeq2Seq(translator.tokenizer.vocab_size, d_model=8, units=6)
    other.build()
    randomize(other, seed=4)
    model = Ensemble([translator.model, other])
    decoding = DecodingConfig(beam_size=2, max_length=8)
    return Translator(model, translator.tokenizer, decoding=decoding)


def test_the_export_translates_as_the_ensemble(ensemble, corpus, tmp_path, unverified, eagerly):
    """With weights that are stored small, for which it is made anew."""
    texts = [*corpus.source[:4], "", "zebra"]
    rounded = with_model(ensemble, QuantizedWeights(ensemble.model, "int8").model)
    expected = rounded.translate(texts)
    with unverified("serving_default", "attention"):
        export_saved_model(ensemble, tmp_path / "export", weights="int8")
    exported = load(tmp_path / "export")
    for ours, others in zip(exported.translate(texts), expected, strict=True):
        assert [x.text for x in ours] == [x.text for x in others]
        np.testing.assert_allclose([x.score for x in ours], [x.score for x in others], atol=1e-4)
    found = exported.signatures["attention"](text=tf.constant(texts[:1]))["weights"][0]
    weights = rounded.attention(texts[0]).weights["cross"]
    assert found.shape[:2] == (1, 2 + 1)  # layers, heads of both
    np.testing.assert_allclose(found, weights, atol=1e-4)


def test_an_export_computes_in_float32(tokenizer):
    sizes = dict(num_layers=1, d_model=8, ff_dim=8, num_heads=2, dtype="mixed_bfloat16")
    ensemble = Ensemble([Transformer(tokenizer.vocab_size, **sizes) for _ in range(2)])
    copy = in_float32(ensemble)
    assert {member.compute_dtype for member in copy.members} == {"float32"}
    for ours, others in zip(copy.get_weights(), ensemble.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, others)


def test_other_libraries_have_no_ensembles(ensemble, tmp_path):
    for export in (export_ctranslate2, export_hugging_face):
        with pytest.raises(ValueError, match="Received: the model Ensemble. Export it as a Saved"):
            export(ensemble, tmp_path / "models")
    assert not (tmp_path / "models").exists()
