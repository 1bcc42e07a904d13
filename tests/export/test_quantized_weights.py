"""Weights that are stored small are rounded as said, and float32 where they are used."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.export import export_saved_model
from keras_transformer.export.quantized_weights import QuantizedWeights
from keras_transformer.models import Transformer
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator


@pytest.mark.parametrize("dtype, error", [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_halves_are_rounded_to_the_nearest(translator, dtype, error):
    small = QuantizedWeights(translator.model, dtype)
    for weight, rounded in zip(translator.model.weights, small.model.weights, strict=True):
        difference = np.abs(weight.numpy() - rounded.numpy())
        if weight.ndim < 2:
            assert not difference.any()
        else:
            assert (difference <= error * np.abs(weight.numpy()) + 1e-7).all() and difference.any()


def test_int8_has_255_values_for_each_channel(translator):
    small = QuantizedWeights(translator.model, "int8")
    for weight, rounded in zip(translator.model.weights, small.model.weights, strict=True):
        weight, rounded = weight.numpy(), rounded.numpy()
        if weight.ndim < 2:
            np.testing.assert_array_equal(weight, rounded)
            continue
        axis = 1 if weight.shape == (150, 32) else 0  # the tokens of the table; else the outputs
        step = np.abs(weight).max(axis, keepdims=True) / 127
        assert (np.abs(weight - rounded) <= 0.501 * step).all()
        levels = rounded / step
        np.testing.assert_allclose(levels, levels.round(), atol=1e-3)


def test_one_graph_expands_all_weights(translator, tmp_path, monkeypatch):
    """A graph for each of its tensors would make an export twice as large, and slow."""
    tracked, _, _ = QuantizedWeights(translator.model, "int8").track()
    assert len(tf.nest.flatten(translator.model.decoding_weights())) > 10
    calls, decoding_weights = [], Transformer.decoding_weights

    def counted(model):
        calls.append(model)
        return decoding_weights(model)

    monkeypatch.setattr(Transformer, "decoding_weights", counted)
    tf.saved_model.save(tracked, str(tmp_path))
    assert len(calls) == 1


@pytest.mark.slow
def test_exports_in_one_process_do_not_share_weights(translator, texts, tmp_path):
    """TensorFlow finds a variable by its name, wherever it was loaded."""
    negated = QuantizedWeights(translator.model, "float16").model
    negated.set_weights([-weight for weight in negated.get_weights()])
    other = Translator(negated, translator.tokenizer, decoding=translator.decoding)
    paths = [export_saved_model(t, tmp_path, weights="float16") for t in (translator, other)]
    first, second = (load(path) for path in paths)
    assert first("A dog runs.") == "Ein Hund läuft." != second("A dog runs.")
    assert first("A dog runs.") == "Ein Hund läuft."


def test_other_types_are_refused(translator, tmp_path):
    with pytest.raises(ValueError, match="Received: weights='int8_float32'"):
        export_saved_model(translator, tmp_path / "models", weights="int8_float32")
    assert not (tmp_path / "models").exists()
