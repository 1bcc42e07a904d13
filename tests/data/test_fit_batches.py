"""What `fit` reads: without end, or the same batches in each pass."""

import itertools

import keras
import numpy as np
import pytest

from keras_transformer.data.fit_batches import FiniteBatches, fit_batches

ROWS = np.random.default_rng(1).normal(size=(5, 3, 4)).astype("float32")  # batches, B, D


class Source:
    """Generates batches, and counts those that were made."""

    def __init__(self):
        self.num_made = 0

    def __call__(self):
        for x in ROWS:
            self.num_made += 1
            yield x, x.sum(axis=1, keepdims=True)


BATCH = next(Source()())


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    is_tensorflow = keras.backend.backend() == "tensorflow"  # whose graph would take a second
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=is_tensorflow)
    return model


def losses_of(model):
    """The loss of each batch."""
    found = keras.ops.convert_to_numpy(model(ROWS.reshape(-1, 4))).reshape(5, 3, 1)
    return np.mean((found - ROWS.sum(axis=2, keepdims=True)) ** 2, axis=(1, 2))


def test_batches_with_an_end_are_made_when_they_are_read():
    source = Source()
    batches = FiniteBatches(source, 5)
    assert len(batches) == 5 and source.num_made == 0
    for _ in range(2):
        for i in range(5):
            np.testing.assert_array_equal(batches[i][0], ROWS[i])
    assert source.num_made == 10
    for i in (3, 4, 1, 1):  # in any order, too
        np.testing.assert_array_equal(batches[i][0], ROWS[i])
    assert source.num_made == 10 + 5 + 2 + 2


def test_a_model_reads_them_in_each_validation(model):
    batches = fit_batches(Source(), BATCH, 5)
    expected = pytest.approx(losses_of(model).mean(), rel=1e-4)
    assert model.evaluate(batches, verbose=0) == model.evaluate(batches, verbose=0) == expected


def test_a_model_reads_batches_without_end_in_their_order(model):
    options = dict(steps_per_epoch=7, epochs=2, shuffle=False, verbose=0)
    batches = fit_batches(lambda: (each for _ in itertools.count() for each in Source()()), BATCH)
    losses = model.fit(batches, **options).history["loss"]
    expected = losses_of(model)[[*range(5), *range(5), *range(4)]].reshape(2, 7).mean(axis=1)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
