"""The loss against NumPy: its value, its gradient, what padding does to it."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.models import Transformer
from keras_transformer.training import Perplexity, TokenAccuracy
from keras_transformer.training.losses import TokenCrossEntropy

B, T, V = 3, 5, 11


@pytest.fixture
def batch():
    """Logits, labels padded with 0, and each real token's share of the batch."""
    rng = np.random.default_rng(1)
    logits = rng.normal(scale=2.0, size=(B, T, V)).astype("float32")
    labels = rng.integers(1, V, size=(B, T)).astype("int32")
    labels[0, 3:] = labels[2, 1:] = 0
    real = (labels != 0).astype("float32")
    return logits, labels, real / real.sum()


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def targets(labels, label_smoothing):
    return (1 - label_smoothing) * np.eye(V)[labels] + label_smoothing / V


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_is_the_weighted_sum_of_the_tokens_losses(batch, label_smoothing):
    logits, labels, weights = batch
    loss = TokenCrossEntropy(label_smoothing)(labels, logits, weights)
    per_token = -(targets(labels, label_smoothing) * log_softmax(logits)).sum(axis=-1)
    assert float(loss) == pytest.approx((per_token * weights).sum(), rel=1e-5)
    assert TokenCrossEntropy().label_smoothing == 0.1
    options = dict(from_logits=True, label_smoothing=label_smoothing, reduction="sum")
    of_keras = keras.losses.CategoricalCrossentropy(**options)(np.eye(V)[labels], logits, weights)
    assert float(loss) == pytest.approx(float(of_keras), rel=1e-5)
    assert float(TokenCrossEntropy(label_smoothing)(labels, logits)) == pytest.approx(
        per_token.sum(), rel=1e-5
    )


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_alignments_add_the_loss_of_the_paper(batch, r_drop):
    """Garg et al. (2019, section 4.2), by loops; the tokens of both predictions have half weights.

    The second word is aligned to two tokens, and the third to none.
    """
    logits, labels, weights = batch
    rng = np.random.default_rng(4)
    log_weights = log_softmax(rng.normal(size=(B, T, 4)))
    alignment = np.zeros((B, T, 4))
    for b in range(B):
        alignment[b, 0, b], alignment[b, 1, [1, 3]] = 1.0, 0.5
    expected = 0.0
    for b in range(B):
        for t in range(T):
            for s in range(4):
                expected -= weights[b, t] * alignment[b, t, s] * log_weights[b, t, s]
    sides = [np.asarray(x, "float32") for x in (alignment, log_weights)]
    if r_drop:
        logits, labels, *sides = (np.concatenate([x, x]) for x in (logits, labels, *sides))
        weights = np.concatenate([weights, weights]) / 2
    loss = TokenCrossEntropy(0.1, r_drop, alignment_weight=0.3)
    given = logits, np.eye(V, dtype="float32"), labels, weights
    found = [
        loss.from_hidden(*given, training=True, alignment=x).loss for x in (None, tuple(sides))
    ]
    assert float(found[1]) - float(found[0]) == pytest.approx(0.3 * expected, rel=1e-4)


@keras.saving.register_keras_serializable("keras_transformer_tests")
class Table(keras.layers.Layer):
    """Ignores its input and returns its weight, the logits."""

    def __init__(self, shape, **kwargs):
        super().__init__(**kwargs)
        self.table = self.add_weight(shape=shape, name="table")

    def call(self, x):
        return self.table + 0.0 * ops.sum(x)

    def compute_output_shape(self, input_shape):
        return tuple(self.table.shape)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_a_step_goes_by_softmax_minus_target(batch, label_smoothing):
    """With the rate 1, gradient descent on the logits subtracts the gradient itself."""
    logits, labels, weights = batch
    table = Table(logits.shape)
    table.set_weights([logits])
    model = keras.Sequential([keras.Input((1,)), table])
    model.compile(keras.optimizers.SGD(1.0), TokenCrossEntropy(label_smoothing))
    model.train_on_batch(np.zeros((B, 1)), labels, sample_weight=weights)
    gradient = logits - table.get_weights()[0]
    softmax = np.exp(log_softmax(logits))
    expected = (softmax - targets(labels, label_smoothing)) * weights[..., None]
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    assert np.all(gradient[labels == 0] == 0)


def test_padding_of_weight_zero_changes_nothing(batch):
    logits, labels, weights = batch
    loss = TokenCrossEntropy()
    expected = float(loss(labels, logits, weights))
    longer = [np.pad(x, ((0, 2), (0, 3))) for x in (labels, weights)]
    longer_logits = np.pad(logits, ((0, 2), (0, 3), (0, 0)), constant_values=7.0)
    longer_logits[labels.shape[0] :] = 1e9
    assert float(loss(longer[0], longer_logits, longer[1])) == pytest.approx(expected, rel=1e-6)


def test_parts_of_a_batch_sum_to_the_whole(batch):
    """Replicas hold unequal numbers of tokens; their losses add up to the mean over all."""
    logits, labels, weights = batch
    loss = TokenCrossEntropy()
    parts = [
        float(loss(labels[i : i + 1], logits[i : i + 1], weights[i : i + 1])) for i in range(B)
    ]
    assert sum(parts) == pytest.approx(float(loss(labels, logits, weights)), rel=1e-6)


def test_serialization():
    loss = TokenCrossEntropy(label_smoothing=0.25, r_drop=2.0, name="x")
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(copy) is TokenCrossEntropy
    assert (copy.label_smoothing, copy.r_drop) == (0.25, 2.0)
    assert (copy.reduction, copy.name) == ("sum", "x")


def test_in_a_saved_compiled_model(tmp_path, batch):
    model = keras.Sequential([keras.Input((1,)), Table((B, T, V))])
    model.compile("sgd", TokenCrossEntropy(0.25))
    _, labels, weights = batch
    expected = model.evaluate(np.zeros((B, 1)), labels, B, sample_weight=weights, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.label_smoothing == 0.25
    again = loaded.evaluate(np.zeros((B, 1)), labels, B, sample_weight=weights, verbose=0)
    assert again == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0])
def test_what_is_no_share_is_refused(label_smoothing):
    with pytest.raises(ValueError, match=f"Received: label_smoothing={label_smoothing}"):
        TokenCrossEntropy(label_smoothing)


@pytest.mark.parametrize("shape", [(B, T - 1), (B, T + 1), (B,), (B, T, 2), (B - 1, T)])
def test_labels_of_another_shape_are_refused(shape):
    loss, labels = TokenCrossEntropy(), ops.ones(shape, "int32")
    for call in (
        lambda: loss(labels, ops.ones((B, T, V))),
        lambda: loss.from_hidden(ops.ones((B, T, 4)), ops.ones((V, 4)), labels),
    ):
        with pytest.raises(ValueError, match=r"labels of the shape \(3, 5\).* Received: labels.sh"):
            call()
    with pytest.raises(ValueError, match="Expected labels .* Received: none"):
        loss.from_hidden(ops.ones((B, T, 4)), ops.ones((V, 4)), None)


def test_labels_may_have_a_last_axis_of_1(batch):
    logits, labels, _ = batch
    loss = TokenCrossEntropy()
    assert float(loss(labels[..., None], logits)) == float(loss(labels, logits))


# === R-Drop ===


def fitted(run_eagerly, dropout, r_drop, batch_size=4):
    """Returns the model after a step of gradient descent, and what `fit` reports."""
    keras.utils.set_random_seed(3)
    model = Transformer(11, num_layers=1, d_model=8, ff_dim=12, num_heads=2, dropout=dropout)
    rng = np.random.default_rng(2)
    source_ids, target_ids, labels = rng.integers(1, 11, size=(3, batch_size, 5)).astype("int32")
    labels[0, 3:] = 0
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    weights = (labels != 0) / np.count_nonzero(labels)
    loss = TokenCrossEntropy(0.1, r_drop)
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile(keras.optimizers.SGD(0.5), loss, metrics=metrics, run_eagerly=run_eagerly)
    history = model.fit(inputs, labels, batch_size, sample_weight=weights, verbose=0).history
    return model.get_weights(), {name: values[0] for name, values in history.items()}


def test_without_dropout_r_drop_changes_nothing(run_eagerly):
    """Both predictions are the same, so their divergence is 0 and their mean is each of them."""
    weights, metrics = fitted(run_eagerly, dropout=0.0, r_drop=0.0)
    with_it, its_metrics = fitted(run_eagerly, dropout=0.0, r_drop=5.0)
    assert its_metrics == pytest.approx(metrics, rel=1e-5)
    for one, other in zip(weights, with_it, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_with_dropout_the_loss_rises_with_the_factor_of_the_divergence(run_eagerly):
    losses = [
        fitted(run_eagerly, dropout=0.4, r_drop=r_drop)[1]["loss"] for r_drop in (1e-9, 1.0, 3.0)
    ]
    assert losses[1] > losses[0] + 0.01  # the two predictions differ
    assert losses[2] - losses[0] == pytest.approx(3 * (losses[1] - losses[0]), rel=1e-3)


def test_the_rows_of_both_predictions_stay_in_order():
    """Row i and row i + B / 2 are one sentence; what metrics get is in the order of the rows."""
    rng = np.random.default_rng(4)
    hidden, table = (rng.normal(size=size).astype("float32") for size in ((4, 3, 6), (V, 6)))
    labels = np.tile(rng.integers(1, V, size=(2, 3)).astype("int32"), (2, 1))
    losses = TokenCrossEntropy(0.1, 2.0).from_hidden(hidden, table, labels, training=True)
    plain = TokenCrossEntropy(0.1).from_hidden(hidden, table, labels)
    for name in ("cross_entropy", "correct"):
        one, other = (ops.convert_to_numpy(getattr(x, name)) for x in (losses, plain))
        np.testing.assert_allclose(one, other, rtol=1e-5)
    p, q = np.split(np.exp(log_softmax(hidden @ table.T)), 2)
    divergences = ((p - q) * (np.log(p) - np.log(q))).sum()  # KL(p || q) + KL(q || p), summed
    assert float(losses.loss - plain.loss) == pytest.approx(2.0 * divergences / 2, rel=1e-4)


def test_r_drop_does_not_change_validation(batch):
    logits, labels, weights = batch
    hidden, table = ops.convert_to_tensor(logits), ops.eye(V)
    found = TokenCrossEntropy(0.1, 5.0).from_hidden(hidden, table, labels, weights)
    expected = TokenCrossEntropy(0.1)(labels, logits, weights)
    assert float(found.loss) == pytest.approx(float(expected), rel=1e-5)


def test_r_drop_with_a_metric_of_logits_is_refused():
    model = Transformer(11, num_layers=1, d_model=8, ff_dim=12, num_heads=2)
    model.compile("sgd", TokenCrossEntropy(0.1, 5.0), metrics=["accuracy"])
    ids = np.ones((2, 3), "int32")
    with pytest.raises(ValueError, match="only TokenAccuracy and Perplexity.* r_drop=5.0"):
        model.train_on_batch({"source_ids": ids, "target_ids": ids}, ids)


@pytest.mark.parametrize("r_drop", [-1.0, float("inf"), float("nan")])
def test_what_is_no_factor_of_a_divergence_is_refused(r_drop):
    with pytest.raises(ValueError, match=f"Received: r_drop={r_drop}"):
        TokenCrossEntropy(0.1, r_drop)
