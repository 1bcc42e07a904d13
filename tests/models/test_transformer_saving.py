"""A model saved and loaded is the same model, in any form that Keras has."""

import json

import keras
import numpy as np
import pytest

from keras_transformer import Transformer
from keras_transformer.layers.nested import nested_layers
from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.schedules import NoamSchedule
from tests.models.conftest import logits_of


@pytest.mark.parametrize("name", ["all at once", "as in Marian", "performer"])
def test_save_load_equal(shared_model, variants, name, batch, tmp_path):
    """Those with weights that the others have not."""
    model = shared_model(**variants[name])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer and loaded.get_config() == model.get_config()
    assert len(loaded.weights) == len(model.weights)
    for weight, other in zip(model.weights, loaded.weights, strict=True):
        assert weight.path.split("/")[1:] == other.path.split("/")[1:]
    np.testing.assert_allclose(logits_of(loaded, batch), logits_of(model, batch), rtol=1e-6)


def test_a_config_makes_the_same_model(variants):
    """Of those that together have every argument."""
    for name in ("separate embeddings", "all at once", "as in Marian", "performer", "ssru"):
        variant = variants[name]
        config = json.loads(json.dumps(Transformer(23, **variant).get_config()))
        copy = Transformer.from_config(config)
        assert copy.get_config() == config
        for argument, value in variant.items():
            assert getattr(copy, argument) == value, argument


def test_in_mixed_precision(make_model, batch, tmp_path):
    model = make_model(dtype="mixed_bfloat16", num_decoder_layers=1)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.dtype_policy.name == "mixed_bfloat16"
    assert {layer.dtype_policy.name for layer in nested_layers(loaded)} == {"mixed_bfloat16"}
    np.testing.assert_array_equal(logits_of(loaded, batch), logits_of(model, batch))


def test_with_its_optimizer_loss_and_metrics(make_model, batch, tmp_path, run_eagerly):
    # no dropout: Keras does not save the state of random numbers
    model = make_model(num_decoder_layers=1, dropout=0.0)
    model.compile(
        keras.optimizers.Adam(NoamSchedule(12, 100)),
        TokenCrossEntropy(0.2),
        metrics=[TokenAccuracy(), Perplexity()],
        run_eagerly=run_eagerly,
    )
    labels = np.roll(batch["target_ids"], -1, axis=1)
    model.train_on_batch(batch, labels)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.label_smoothing == 0.2
    assert int(loaded.optimizer.iterations) == 1
    for tested in (model, loaded):
        tested.train_on_batch(batch, labels)
    np.testing.assert_allclose(logits_of(loaded, batch), logits_of(model, batch), atol=1e-5)


def test_weights_alone(make_model, batch, tmp_path):
    arguments = dict(normalize_first=True, tie_output=False)
    model, other = make_model(seed=1, **arguments), make_model(seed=2, **arguments)
    assert np.abs(logits_of(model, batch) - logits_of(other, batch)).max() > 0.1
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(logits_of(other, batch), logits_of(model, batch))


def test_within_a_functional_model(make_model, batch, tmp_path):
    given = {name: keras.Input((None,), dtype="int32", name=name) for name in batch}
    transformer = make_model(num_decoder_layers=1)
    model = keras.Model(given, keras.layers.Softmax()(transformer(given)))
    assert model.output_shape == (None, None, 23)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    probabilities = logits_of(loaded, batch)
    np.testing.assert_allclose(probabilities, logits_of(model, batch), rtol=1e-6)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1.0, rtol=1e-5)
