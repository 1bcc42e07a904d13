"""Patches and convolutions of images: which pixels are in which patch, and what is refused."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import ConvolutionalEmbedding, PatchEmbedding
from keras_transformer.layers.grid_positions import resized_grid


def built(randomize, **arguments):
    layer = PatchEmbedding(**{**dict(image_size=(4, 6), patch_size=2, d_model=5), **arguments})
    layer.build((None, *layer.image_size, 3))
    return randomize(layer)


def random_images(height=4, width=6):
    return np.random.default_rng(1).normal(size=(2, height, width, 3)).astype("float32")


def by_loops(layer, images, table):
    """Eq. 1 without the class token: patch by patch, row by row, pixel by pixel."""
    kernel, bias = layer.projection.get_weights()
    size, rows = layer.patch_size, []
    for top in range(0, images.shape[1], size):
        for left in range(0, images.shape[2], size):
            pixels = [
                images[:, top + i, left + j, channel]
                for i in range(size)
                for j in range(size)
                for channel in range(3)
            ]
            position = table[top // size, left // size]
            rows.append(np.stack(pixels, axis=1) @ kernel + bias + position)
    return np.stack(rows, axis=1)


@pytest.mark.parametrize("class_token", [False, True])
def test_patches_are_projected_row_by_row(randomize, class_token):
    layer, images = built(randomize, class_token=class_token), random_images()
    output = ops.convert_to_numpy(layer(images))
    expected = by_loops(layer, images, layer.positions.get_weights()[0])
    assert output.shape == (2, 6 + class_token, 5) and layer.grid == (2, 3)
    assert layer.compute_output_shape(images.shape) == (2, 6 + class_token, 5)
    np.testing.assert_allclose(output[:, int(class_token) :], expected, atol=1e-5)
    if class_token:
        first = ops.convert_to_numpy(layer.class_embedding + layer.class_position)
        np.testing.assert_allclose(output[:, 0], np.stack([first] * 2), rtol=1e-6)


def test_an_image_of_another_size_has_resized_positions(randomize):
    layer, images = built(randomize, resize_positions=True), random_images(8, 4)
    table = ops.convert_to_numpy(resized_grid(layer.positions.get_weights()[0], 4, 2))
    output = ops.convert_to_numpy(layer(images))
    np.testing.assert_allclose(output, by_loops(layer, images, table), atol=1e-5)


def test_a_patch_size_that_does_not_divide_another_size_is_refused(randomize):
    with pytest.raises(ValueError, match="must divide .* patch_size=2, height=8, width=5"):
        built(randomize, resize_positions=True)(random_images(8, 5))


def test_whole_numbers_are_taken(randomize):
    layer = built(randomize)
    images = np.random.default_rng(1).integers(0, 256, size=(2, 4, 6, 3)).astype("uint8")
    found = ops.convert_to_numpy(layer(images))
    expected = ops.convert_to_numpy(layer(images.astype("float32")))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sizes unknown in a graph")
def test_a_size_known_only_when_the_graph_runs(randomize):
    import tensorflow as tf

    layer = built(randomize, resize_positions=True, class_token=True)
    unknown = [tf.TensorSpec([None, None, None, None])]
    function = tf.function(layer, input_signature=unknown, autograph=False)
    for images in (random_images(), random_images(8, 4)):
        np.testing.assert_allclose(function(images), layer(images), atol=1e-5)
    fixed = built(randomize)
    function = tf.function(fixed, input_signature=unknown, autograph=False)
    np.testing.assert_allclose(function(random_images()), fixed(random_images()), atol=1e-5)
    for images in (random_images(6, 4), random_images()[..., :2]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected shape \[\?,4,6,3\]"):
            function(images)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 4, 6), r"shape \(B, height, width, 3\). Received: images.shape=\(2, 4, 6\)"),
        ((2, 4, 6, 1), r"shape \(B, height, width, 3\). Received: images.shape=\(2, 4, 6, 1\)"),
        ((2, 3, 4, 6), r"shape \(B, height, width, 3\). Received: images.shape=\(2, 3, 4, 6\)"),
        ((2, 6, 4, 3), r"4 pixels high and 6 wide.*Received: images.shape=\(2, 6, 4, 3\)"),
        ((2, 4, 7, 3), r"4 pixels high and 6 wide"),
    ],
)
def test_other_images_are_refused(randomize, shape, message):
    with pytest.raises(ValueError, match=message):
        built(randomize)(np.zeros(shape, "float32"))
    convolutional = ConvolutionalEmbedding((4, 6), 8)
    convolutional.build((None, 4, 6, 3))
    with pytest.raises(ValueError, match=message):
        convolutional(np.zeros(shape, "float32"))


def test_an_image_without_pixels_is_refused(randomize):
    layer = built(randomize, resize_positions=True)
    for shape in ((1, 0, 6, 3), (1, 4, 0, 3), (1, 0, 0, 3)):
        with pytest.raises(ValueError, match="patch_size must divide the height and the width"):
            layer(np.zeros(shape, "float32"))


def test_a_size_of_numpy_is_plain_data():
    config = PatchEmbedding(np.int64(4), 2, 5).get_config()
    assert json.loads(json.dumps(config["image_size"])) == [4, 4]


@pytest.mark.parametrize("shape", [(0, 4, 6, 3), (1, 4, 6, 3), (3, 4, 6, 3)])
def test_convolutions_of_any_batch(shape):
    """TensorFlow's convolution gives the images themselves for an empty batch, on a CPU."""
    images = np.random.default_rng(2).normal(size=(3, 4, 6, 3)).astype("float32")
    layer = ConvolutionalEmbedding((4, 6), d_model=8)
    expected = ops.convert_to_numpy(layer(images))
    function = keras.Model(inputs := keras.Input((4, 6, 3)), layer(inputs))
    for call in (layer, function):
        found = ops.convert_to_numpy(call(images[: shape[0]]))
        np.testing.assert_allclose(found, expected[: shape[0]], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(patch_size=3), "must divide .* patch_size=3, height=4, width=6"),
        (dict(patch_size=0), "Received: patch_size=0"),
        (dict(image_size=(4, 6, 3)), r"Received: image_size=\(4, 6, 3\)"),
        (dict(image_size=(4, 0)), "width must be a whole number"),
        (dict(image_size=None), "Received: image_size=None"),
        (dict(image_size=4.0), "Received: image_size=4.0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(**{**dict(image_size=(4, 6), patch_size=2, d_model=5), **arguments})
