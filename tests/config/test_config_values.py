"""Values of settings at the edge of what they may be."""

import pytest

from keras_transformer.config import Config
from keras_transformer.models.from_config import check_model_settings


@pytest.mark.parametrize("text", ["", "null"])
def test_text_that_is_left_empty_is_none(text):
    config = Config().override(["tokenizer.model=a.model"])
    assert config.override([f"tokenizer.model={text}"]).tokenizer.model is None


@pytest.mark.parametrize(
    "name", ["data.max_length", "decoding.max_length", "decoding.max_source_length"]
)
def test_each_length_stays_within_learned_positions(name):
    model = ["model.positions=learned", "model.max_length=300"]
    check_model_settings(Config().override([*model, f"{name}=300"]))
    with pytest.raises(ValueError, match=f"Received: {name}=301, model.max_length=300"):
        check_model_settings(Config().override([*model, f"{name}=301"]))
    check_model_settings(Config().override([f"{name}=301"]))  # sinusoids go on
