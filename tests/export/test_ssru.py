"""A recurrent decoder in a SavedModel."""

import numpy as np
import pytest

from keras_transformer.config import DecodingConfig
from keras_transformer.export import export_saved_model
from keras_transformer.models import Transformer
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator


@pytest.mark.filterwarnings("ignore:The text or its translation reached a limit:UserWarning")
def test_its_export_finds_the_same_translations(tokenizer, randomize, tmp_path, unverified):
    model = Transformer(
        tokenizer.vocab_size, num_layers=1, d_model=12, ff_dim=17, num_heads=3, dropout=0.0,
        normalize_first=True, decoder_attention="ssru",
    )  # fmt: skip
    randomize(model, seed=3)
    decoding = DecodingConfig(beam_size=3, max_length=6, max_source_length=20)
    translator = Translator(model, tokenizer, decoding=decoding)
    texts = ["the red car", "a dog", "", "the cat sees the dog"]
    with unverified("serving_default"):
        export_saved_model(translator, tmp_path)
    found, expected = load(tmp_path).translate(texts), translator.translate(texts)
    assert len({x[0].text for x in expected}) > 2
    for ours, others in zip(found, expected, strict=True):
        assert ours[0].text == others[0].text
        np.testing.assert_allclose(ours[0].score, others[0].score, atol=1e-4)
