"""Dropout of entries and of whole tokens: identity, share of zeros, expectation, seeds."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Dropout, WordDropout

ONES = np.ones((101, 103, 7), "float32")
X = np.random.default_rng(1).uniform(1, 2, size=ONES.shape).astype("float32")


def dropped(layer, x=ONES):
    return ops.convert_to_numpy(layer(x, training=True))


@pytest.mark.parametrize("layer_class", [Dropout, WordDropout])
def test_inference_is_the_identity(layer_class):
    layer = layer_class(0.5)
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(X)), X)
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(X, training=False)), X)
    np.testing.assert_array_equal(dropped(layer_class(0.0), X), X)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_share_of_zeros_and_expectation(rate):
    output = dropped(Dropout(rate))
    share = np.mean(output == 0)
    deviation = np.sqrt(rate * (1 - rate) / output.size)
    assert abs(share - rate) < 1 / 512 + 5 * deviation  # rounded to the nearest 1/256 at most
    kept = output[output != 0]
    np.testing.assert_allclose(kept, kept[0])
    assert abs(kept[0] - 1 / (1 - rate)) < 0.05 * kept[0]
    assert abs(output.mean() - 1) < 5 * deviation * kept[0]


def test_each_entry_is_drawn_by_itself():
    zero = dropped(Dropout(0.5)) == 0
    for axis in range(3):
        neighbours = np.diff(zero.astype(int), axis=axis) == 0
        assert abs(neighbours.mean() - 0.5) < 0.01
        share = zero.mean(axis=tuple({0, 1, 2} - {axis}))
        assert np.all(np.abs(share - 0.5) < 0.1)


def test_a_number_that_is_not_a_multiple_of_four():
    for shape in ((1,), (3,), (5, 7), (2, 3, 11), (0, 3)):
        assert dropped(Dropout(0.3), np.ones(shape, "float32")).shape == shape


def test_calls_differ_and_a_seed_reproduces_them():
    layer = Dropout(0.5, seed=5)
    first, second = dropped(layer), dropped(layer)
    assert 0.4 < np.mean(first != second) < 0.6
    again = Dropout(0.5, seed=5)
    np.testing.assert_array_equal(dropped(again), first)
    np.testing.assert_array_equal(dropped(again), second)
    assert np.any(dropped(Dropout(0.5, seed=6)) != first)
    assert np.any(dropped(Dropout(0.5)) != dropped(Dropout(0.5)))


def test_the_global_seed_reproduces():
    keras.utils.set_random_seed(3)
    first = dropped(Dropout(0.5))
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(dropped(Dropout(0.5)), first)


def test_the_gradient_is_the_mask(gradient):
    result = gradient(lambda x: Dropout(0.25, seed=5)(x, training=True), ONES)
    np.testing.assert_allclose(result, dropped(Dropout(0.25, seed=5)), rtol=1e-6)


def test_bfloat16():
    output = Dropout(0.25, dtype="mixed_bfloat16")(ONES, training=True)
    assert ops.dtype(output) == "bfloat16"
    output = ops.convert_to_numpy(ops.cast(output, "float32"))
    assert abs(np.mean(output == 0) - 0.25) < 0.01 and abs(output.mean() - 1) < 0.02


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="shapes unknown in a graph")
def test_unknown_shapes_in_a_graph():
    import tensorflow as tf

    layer = Dropout(0.5)
    function = tf.function(
        lambda x: layer(x, training=True), input_signature=[tf.TensorSpec([None, None, 7])]
    )
    assert function.get_concrete_function().output_shapes.as_list() == [None, None, 7]
    first, second = function(ONES).numpy(), function(ONES).numpy()
    assert abs(np.mean(first == 0) - 0.5) < 0.01
    assert 0.4 < np.mean(first != second) < 0.6
    assert function(ONES[:3, :5]).shape == (3, 5, 7)


def test_config():
    copy = Dropout.from_config(Dropout(0.3, seed=5, name="x").get_config())
    assert (copy.rate, copy.seed, copy.name) == (0.3, 5, "x")
    np.testing.assert_array_equal(dropped(copy), dropped(Dropout(0.3, seed=5)))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_a_rate_that_is_no_share_is_refused(rate):
    with pytest.raises(ValueError, match=f"Received: rate={rate}"):
        Dropout(rate)


def test_a_noise_shape_is_refused():
    with pytest.raises(ValueError, match=r"Received: noise_shape=\(1, 5\)"):
        Dropout(0.5, noise_shape=(1, 5))


# === Of whole tokens ===


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_token_is_dropped_as_a_whole_or_scaled_up(rate):
    output = dropped(WordDropout(rate), X)
    zero = output == 0
    np.testing.assert_array_equal(zero.all(axis=-1), zero.any(axis=-1))
    deviation = np.sqrt(rate * (1 - rate) / (101 * 103))
    assert abs(zero[..., 0].mean() - rate) < 1 / 512 + 5 * deviation
    kept = ~zero[..., 0]
    scale = output[kept] / X[kept]
    np.testing.assert_allclose(scale, scale[0, 0], rtol=1e-5)
    assert abs(scale[0, 0] - 1 / (1 - rate)) < 0.01 * scale[0, 0]


def test_tokens_are_drawn_one_by_one_and_anew_each_time():
    layer = WordDropout(0.5, seed=5)
    first, second = ((dropped(layer) == 0)[..., 0] for _ in range(2))
    for axis in range(2):
        neighbours = np.diff(first.astype(int), axis=axis) == 0
        assert abs(neighbours.mean() - 0.5) < 0.03
    assert 0.4 < np.mean(first != second) < 0.6
    np.testing.assert_array_equal((dropped(WordDropout(0.5, seed=5)) == 0)[..., 0], first)


def test_a_mask_of_keras_is_handed_on():
    ids = np.array([[4, 7, 0], [5, 0, 0]])
    x = keras.layers.Embedding(9, 4, mask_zero=True)(ids)
    output = WordDropout(0.5)(x, training=True)
    np.testing.assert_array_equal(ops.convert_to_numpy(output._keras_mask), ids != 0)
