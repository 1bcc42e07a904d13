"""The metrics as means over real tokens, exact over batches of unequal sizes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.training.metrics import Perplexity, TokenAccuracy

V = 11


def batches():
    """Three batches `(labels, logits)` of other shapes; the last holds padding alone."""
    rng = np.random.default_rng(1)
    result = []
    for batch_size, length in ((3, 5), (2, 13), (1, 2)):
        labels = rng.integers(1, V, size=(batch_size, length)).astype("int32")
        logits = rng.normal(scale=2.0, size=(batch_size, length, V)).astype("float32")
        logits[np.arange(batch_size)[:, None], np.arange(length), labels] += 1.5
        labels[0, 2:] = 0
        result.append((labels, logits))
    result[-1][0][:] = 0
    return result


def expected():
    """The accuracy and the perplexity, token by token."""
    correct, losses = [], []
    for labels, logits in batches():
        for index in np.ndindex(labels.shape):
            if labels[index] != 0:
                scores = logits[index].astype("float64")
                correct.append(scores.argmax() == labels[index])
                losses.append(np.log(np.exp(scores).sum()) - scores[labels[index]])
    return {TokenAccuracy: np.mean(correct), Perplexity: np.exp(np.mean(losses))}


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_is_exact_over_unequal_batches(metric_class):
    metric = metric_class()
    for _ in range(2):  # the second time after a reset
        for labels, logits in batches():
            metric.update_state(labels, logits)
        assert float(metric.result()) == pytest.approx(expected()[metric_class], rel=1e-5)
        metric.reset_state()
    assert 0.1 < expected()[TokenAccuracy] < 0.9  # neither end of the scale


def test_of_equal_logits_one_is_the_answer():
    metric = TokenAccuracy()
    metric.update_state(np.array([[1, 2, 3, 4]]), np.zeros((1, 4, V), "float32") + np.eye(V)[2])
    assert float(metric.result()) == 0.25
    metric.reset_state()
    metric.update_state(np.array([[1, 2, 3, 4]]), np.ones((1, 4, V), "float32"))
    assert float(metric.result()) == 0.0  # the first, which is padding


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_sample_weights_do_not_count(metric_class):
    metric = metric_class()
    for labels, logits in batches():
        weights = np.random.default_rng(2).uniform(size=labels.shape)
        metric.update_state(labels, logits, sample_weight=weights)
    assert float(metric.result()) == pytest.approx(expected()[metric_class], rel=1e-5)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_labels_as_floats_and_logits_in_bfloat16(metric_class):
    metric, rounded = metric_class(), metric_class()
    for labels, logits in batches():
        logits = ops.cast(logits, "bfloat16")
        metric.update_state(labels.astype("float32"), logits)
        rounded.update_state(labels, ops.cast(logits, "float32"))
    assert float(metric.result()) == pytest.approx(float(rounded.result()), rel=1e-5)


def test_before_the_first_token():
    assert float(TokenAccuracy().result()) == 0.0
    assert float(Perplexity().result()) == 1.0


def test_perplexity_by_hand():
    """Of a model that knows nothing: the size of the vocabulary."""
    metric = Perplexity()
    metric.update_state(np.array([[3, 5, 0]]), np.zeros((1, 3, V), "float32"))
    assert float(metric.result()) == pytest.approx(V, rel=1e-6)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity])
def test_serialization(metric_class):
    metric = metric_class(name="x")
    copy = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(copy) is metric_class and copy.name == "x"
    assert (
        metric_class().name == {TokenAccuracy: "accuracy", Perplexity: "perplexity"}[metric_class]
    )


def test_in_evaluate_and_in_a_saved_model(tmp_path):
    """`evaluate` cuts the sentences into batches of two and one: the token mean stays exact."""
    labels, logits = batches()[0]
    model = keras.Sequential([keras.Input((5, V)), keras.layers.Activation("linear")])
    model.compile(
        "sgd",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[TokenAccuracy(), Perplexity()],
        jit_compile=False,
    )
    model.save(tmp_path / "model.keras")
    for tested in (model, keras.models.load_model(tmp_path / "model.keras")):
        result = tested.evaluate(logits, labels, batch_size=2, return_dict=True, verbose=0)
        for metric in (TokenAccuracy(), Perplexity()):
            metric.update_state(labels, logits)
            assert result[metric.name] == pytest.approx(float(metric.result()), rel=1e-5)
