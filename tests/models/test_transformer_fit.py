"""Training with Keras's own `compile` and `fit`, with its losses and with ours."""

import functools

import keras
import numpy as np
import pytest

from keras_transformer.special_ids import END_ID
from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy

LOSSES = {
    "sparse categorical": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "ours": TokenCrossEntropy(),
}


@pytest.fixture
def make_model(make_model):
    """Makes models of one block on each side: the graph of two takes twice the time."""
    return functools.partial(make_model, num_decoder_layers=1)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_step_lowers_the_loss(make_model, batch, loss, run_eagerly):
    labels = np.roll(batch["target_ids"], -1, axis=1)
    weights = (batch["target_ids"] != 0) / 8.0
    model = make_model(normalize_first=True)
    model.compile(
        keras.optimizers.SGD(0.05),
        loss,
        metrics=[TokenAccuracy(), Perplexity()],
        run_eagerly=run_eagerly,
    )
    before = model.evaluate(batch, labels, sample_weight=weights, verbose=0, return_dict=True)
    weights_before = model.get_weights()
    history = model.fit(batch, labels, sample_weight=weights, epochs=1, verbose=0).history
    after = model.evaluate(batch, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert after["loss"] < before["loss"] and after["perplexity"] < before["perplexity"]
    assert set(history) == {"loss", "accuracy", "perplexity"}
    for weight, old in zip(model.weights, weights_before, strict=True):
        # the key's bias adds the same to every score of a query: the softmax does not see it
        moved = np.abs(weight.numpy() - old).max() > 1e-7
        assert moved or "key/bias" in weight.path, weight.path


@pytest.mark.parametrize("name", ["ALiBi", "linear attention", "performer", "ssru"])
def test_every_attention_trains(make_model, variants, batch, name, run_eagerly):
    """Those whose gradients go other ways than that of dense attention with a mask."""
    labels = np.roll(batch["target_ids"], -1, axis=1)
    labels[:, -1] = END_ID
    weights = np.ones(labels.shape, "float32") / labels.size
    model = make_model(**{**variants[name], "dropout": 0.0})
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy(), run_eagerly=run_eagerly)
    losses = [model.train_on_batch(batch, labels, sample_weight=weights) for _ in range(2)]
    assert np.all(np.isfinite(losses)) and losses[-1] < losses[0]


def test_training_from_a_sequence_of_batches_of_other_lengths(make_model, batch):
    """In a graph, as users train."""

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            longer = {
                name: np.pad(ids, ((0, index), (0, 3 * index))) for name, ids in batch.items()
            }
            labels = np.roll(longer["target_ids"], -1, axis=1)
            return longer, labels, (longer["target_ids"] != 0) / 8.0

    model = make_model(normalize_first=True)
    model.compile("adam", TokenCrossEntropy(), metrics=[TokenAccuracy(), Perplexity()])
    history = model.fit(Batches(), epochs=2, verbose=0).history
    assert set(history) == {"loss", "accuracy", "perplexity"}
    for values in (history["loss"], history["perplexity"]):
        assert np.all(np.isfinite(values)) and values[-1] < values[0]


class Unfused(TokenCrossEntropy):
    """The same loss, of the logits."""

    from_hidden = None


@pytest.mark.parametrize("tie_output,output_bias", [(False, False), (True, True)])
def test_training_without_logits_is_training_with_them(
    make_model, batch, tie_output, output_bias, run_eagerly
):
    labels = np.roll(batch["target_ids"], -1, axis=1)
    weights = (labels != 0) / 8.0
    results = []
    for loss_class in (TokenCrossEntropy, Unfused):
        keras.utils.set_random_seed(5)
        options = dict(tie_output=tie_output, output_bias=output_bias)
        model = make_model(**options, normalize_first=True, dropout=0.0)
        loss = loss_class(0.1)
        model.compile(
            keras.optimizers.SGD(0.05),
            loss,
            metrics=[TokenAccuracy(), Perplexity()],
            run_eagerly=run_eagerly,
        )
        assert model.needs_no_logits == (loss_class is TokenCrossEntropy)
        history = model.fit(batch, labels, sample_weight=weights, verbose=0).history
        evaluated = model.evaluate(batch, labels, sample_weight=weights, verbose=0)
        results.append((history, evaluated, model.get_weights()))
    (history, evaluated, trained), (expected_history, expected, expected_trained) = results
    assert history.keys() == expected_history.keys()
    for name, values in history.items():
        np.testing.assert_allclose(values, expected_history[name], rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(evaluated, expected, rtol=1e-4)
    for weight, other in zip(trained, expected_trained, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-3, atol=1e-5)


def test_what_layers_add_to_the_loss_counts(make_model, batch, run_eagerly):
    """As the penalty of a weight."""
    labels = np.roll(batch["target_ids"], -1, axis=1)
    weights = (labels != 0) / 8.0
    model = make_model(dropout=0.0)
    table = model.source_embedding.embeddings
    model.compile("sgd", TokenCrossEntropy(), run_eagerly=run_eagerly)
    before = model.test_on_batch(batch, labels, sample_weight=weights)
    table.regularizer = keras.regularizers.L2(0.5)
    model.compile("sgd", TokenCrossEntropy(), run_eagerly=run_eagerly)
    assert model.needs_no_logits
    after = model.test_on_batch(batch, labels, sample_weight=weights)
    penalty = 0.5 * np.square(model.source_embedding.get_weights()[0]).sum()
    assert after - before == pytest.approx(penalty, rel=1e-4)


def test_whatever_wants_logits_gets_them(make_model, batch, run_eagerly):
    labels = np.roll(batch["target_ids"], -1, axis=1)
    model = make_model()
    for arguments in (
        dict(loss=TokenCrossEntropy(), metrics=["sparse_categorical_accuracy"]),
        dict(loss=TokenCrossEntropy(), weighted_metrics=[TokenAccuracy()]),
        dict(loss=TokenCrossEntropy(), loss_weights=[2.0]),
        dict(loss=TokenCrossEntropy(reduction="sum_over_batch_size")),
        dict(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
    ):
        model.compile("sgd", **arguments, run_eagerly=run_eagerly)
        assert not model.needs_no_logits
        assert np.isfinite(model.test_on_batch(batch, labels)).all()


def test_one_weight_a_sentence(make_model, batch, run_eagerly):
    labels = np.roll(batch["target_ids"], -1, axis=1)
    weights = np.array([[0.0], [2.0]])
    losses = []
    for loss_class in (TokenCrossEntropy, Unfused):
        keras.utils.set_random_seed(5)
        model = make_model(dropout=0.0)
        model.compile("sgd", loss_class(0.1), run_eagerly=run_eagerly)
        losses.append(model.test_on_batch(batch, labels, sample_weight=weights))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_call_returns_logits_also_of_a_compiled_model(make_model, batch):
    model = make_model()
    model.compile("sgd", TokenCrossEntropy())
    assert tuple(model(batch, training=True).shape) == (2, 5, 23)
