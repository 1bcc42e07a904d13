"""What our models rely on in Keras's `fit` that is not part of its public interface."""

import keras
import numpy as np
import pytest

from keras_transformer.models import (
    Bert,
    BertClassifier,
    BertPretraining,
    Gpt,
    Transformer,
    VisionTransformer,
)
from keras_transformer.training import Perplexity, TokenAccuracy, TokenCrossEntropy


def test_keras_holds_compiled_metrics_as_compute_metrics_expects():
    """`compute_metrics` finds the object that holds them by its `metrics`, and builds it itself."""
    model = Transformer(20, num_layers=1, d_model=6, ff_dim=5, num_heads=2)
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile("sgd", TokenCrossEntropy(), metrics=metrics)
    holders = [metric for metric in model.metrics if hasattr(metric, "metrics")]
    assert len(holders) == 1
    (holder,) = holders
    assert not holder.built and holder.metrics == []
    labels = np.ones((2, 3), "int32")
    holder.build(labels, labels)
    assert holder.built
    assert [type(metric) for metric in holder.metrics] == [TokenAccuracy, Perplexity]
    assert all(found is given for found, given in zip(holder.metrics, metrics, strict=True))


def test_metrics_see_every_token_of_fit_and_evaluate(run_eagerly):
    """Loud where `compute_metrics` does not find them any more: they would stay at their start."""
    keras.utils.set_random_seed(1)
    model = Transformer(20, num_layers=1, d_model=6, ff_dim=5, num_heads=2, dropout=0.0)
    model.compile(
        keras.optimizers.SGD(0.0),
        TokenCrossEntropy(),
        metrics=[TokenAccuracy(), Perplexity()],
        run_eagerly=run_eagerly,
    )
    ids = np.random.default_rng(1).integers(4, 20, (4, 5)).astype("int32")
    inputs = {"source_ids": ids, "target_ids": ids}
    weights = np.full((4, 5), 1 / 20, "float32")
    assert model.needs_no_logits
    trained = model.fit(inputs, ids, sample_weight=weights, verbose=0, shuffle=False).history
    (holder,) = (metric for metric in model.metrics if hasattr(metric, "metrics"))
    assert [float(metric.num_tokens) for metric in holder.metrics] == [20, 20]
    evaluated = model.evaluate(inputs, ids, sample_weight=weights, verbose=0, return_dict=True)
    assert evaluated["perplexity"] > 1.5
    for name in ("loss", "accuracy", "perplexity"):
        np.testing.assert_allclose(trained[name], [evaluated[name]], rtol=1e-4)


SIZES = dict(num_layers=1, d_model=6, ff_dim=5, num_heads=2)
IDS = np.random.default_rng(1).integers(4, 20, (4, 5)).astype("int32")
IMAGES = np.zeros((4, 4, 4, 1), "float32")
MODELS = {
    "transformer": (lambda: Transformer(20, **SIZES), {"source_ids": IDS, "target_ids": IDS}, IDS),
    "gpt": (lambda: Gpt(20, **SIZES), IDS, IDS),
    "pretraining": (lambda: BertPretraining(Bert(20, **SIZES)), {"ids": IDS}, IDS),
    "classifier": (lambda: BertClassifier(Bert(20, **SIZES), 3), {"ids": IDS}, IDS[:, 0] % 3),
    "vision": (lambda: VisionTransformer(3, 4, 2, 1, **SIZES), IMAGES, IDS[:, 0] % 3),
}


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow traces steps twice")
def test_a_step_is_traced_once(monkeypatch):
    """As all weights are there before: the next test finds that in all models."""
    make, inputs, labels = MODELS["gpt"]
    model, traces = make(), []
    train_step = model.train_step
    monkeypatch.setattr(model, "train_step", lambda data: traces.append(1) or train_step(data))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit(inputs, labels, batch_size=2, epochs=2, verbose=0)
    assert len(traces) == 1


@pytest.mark.parametrize("name", MODELS)
def test_building_a_model_again_changes_nothing_and_the_summary_has_all_layers(name):
    make, inputs, _ = MODELS[name]
    model, lines = make(), []
    model.build()
    before = [weight.path for weight in model.weights]
    assert len(before) > 10
    model.build()
    model(inputs)
    assert [weight.path for weight in model.weights] == before
    model.summary(print_fn=lambda text, **_: lines.append(text), expand_nested=True)
    for layer in model.layers:
        assert layer.name[:8] in "".join(lines)


@pytest.fixture
def fit(run_eagerly):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def fit(model, inputs, labels):
        model.compile("sgd", loss, run_eagerly=run_eagerly)
        model.fit(inputs, labels, verbose=0)

    return fit


def test_a_frozen_bert_stays_as_it_is_when_it_is_loaded_and_trained_further(tmp_path, fit):
    """Frozen before it has weights, the classifier alone is trained, now and later."""
    model = BertClassifier(Bert(20, **SIZES), 3)
    model.bert.trainable = False
    model.build()
    before = model.bert.get_weights()
    fit(model, IDS, IDS[:, 0] % 3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_variables) == 2
    head = loaded.output_layer.get_weights()
    fit(loaded, IDS, IDS[:, 0] % 3)
    for found in (model, loaded):
        for weight, expected in zip(found.bert.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, expected)
    assert not np.array_equal(loaded.output_layer.get_weights()[0], head[0])


def test_a_subclass_trains_the_layers_that_it_adds(fit):
    class FirstToken(Gpt):
        def __init__(self):
            super().__init__(20, **SIZES)
            self.head = keras.layers.Dense(3)

        def call(self, inputs, training=False):
            return self.head(super().call(inputs, training=training)[:, 0])

    class Classifier(BertClassifier):
        def build(self, input_shape):
            super().build(input_shape)
            self.scale = self.add_weight(shape=(), initializer="ones")

        def call(self, inputs, training=False):
            return self.scale * super().call(inputs, training=training)

    model = FirstToken()
    fit(model, IDS, IDS[:, 0] % 3)
    kernel = model.head.get_weights()[0]
    fit(model, IDS, IDS[:, 0] % 3)
    assert not np.array_equal(model.head.get_weights()[0], kernel)
    model = Classifier(Bert(20, **SIZES), 3)
    fit(model, IDS, IDS[:, 0] % 3)
    assert float(model.scale) != 1.0
