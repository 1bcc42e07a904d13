"""The Vision Transformer: properties, saving, training, sizes, and what it refuses."""

import functools
import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers.nested import nested_layers
from keras_transformer.models import VisionTransformer, attention_rollout, class_token_attention
from tests.models.conftest import randomized

# no two sizes equal
SIZES = dict(num_classes=7, image_size=(4, 6), patch_size=2, num_channels=3, num_layers=1,
             d_model=10, ff_dim=17, num_heads=5, dropout=0.1)  # fmt: skip
VARIANTS = {
    "class token": dict(),
    "mean": dict(pooling="mean"),
    "no head": dict(num_classes=None),
    "all at once": dict(pooling="mean", representation_dim=11, resize_positions=True,
                        activation="relu", layer_norm_epsilon=0.01),
}  # fmt: skip


@pytest.fixture(params=VARIANTS)
def variant(request):
    return VARIANTS[request.param]


@functools.cache
def shared(**arguments):
    """Returns the same model for the same arguments, to tests that do not change it."""
    return make(**arguments)


def make(seed=7, **arguments):
    return randomized(VisionTransformer(**{**SIZES, **arguments}), seed)


def random_images(number=3, height=4, width=6):
    return np.random.default_rng(3).normal(size=(number, height, width, 3)).astype("float32")


def outputs(model, images):
    return ops.convert_to_numpy(ops.cast(model(images), "float32"))


def test_the_order_of_patches_counts_through_their_positions_alone():
    """Swapping two patches changes the output, unless they swap positions too."""
    model, images = make(), random_images()
    swapped = images.copy()
    swapped[:, 0:2, 0:2], swapped[:, 2:4, 4:6] = images[:, 2:4, 4:6], images[:, 0:2, 0:2]
    before, after = outputs(model, images), outputs(model, swapped)
    assert np.abs(before - after).max() > 0.1
    table = model.encoder.embedding.positions.embeddings
    values = ops.convert_to_numpy(table).copy()
    values[[0, 1], [0, 2]] = values[[1, 0], [2, 0]]
    table.assign(values)
    np.testing.assert_allclose(outputs(model, swapped), before, atol=1e-5)


@pytest.mark.parametrize("pooling", ["class_token", "mean"])
def test_every_pixel_counts(pooling):
    model, images = shared(pooling=pooling), random_images(1)
    before = outputs(model, images)
    changed = np.repeat(images, 24, axis=0)  # each at another pixel
    changed[..., 1] += np.eye(24).reshape(24, 4, 6)
    assert np.all(np.abs(outputs(model, changed) - before).max(axis=-1) > 1e-4)


def test_an_image_does_not_see_its_neighbours(variant):
    model, images = shared(**variant), random_images()
    alone = np.concatenate([outputs(model, image[None]) for image in images])
    np.testing.assert_allclose(outputs(model, images), alone, atol=1e-5)


def test_an_empty_batch_has_an_empty_result():
    assert shared()(np.zeros((0, 4, 6, 3), "float32")).shape == (0, 7)


def test_weights_are_those_of_every_block(variant):
    model, images = make(**variant, num_layers=2), random_images()
    result, weights = model(images, return_attention_weights=True)
    np.testing.assert_allclose(ops.convert_to_numpy(result), outputs(model, images), atol=1e-6)
    length = 6 + (model.pooling == "class_token")
    assert [tuple(layer.shape) for layer in weights] == [(3, 5, length, length)] * 2
    for layer in weights:
        np.testing.assert_allclose(ops.convert_to_numpy(layer).sum(axis=-1), 1.0, rtol=1e-5)


def test_pooling_and_head_are_what_they_say():
    model = shared()
    hidden = ops.convert_to_numpy(model.encoder(random_images()))
    bare = outputs(shared(num_classes=None), random_images())
    np.testing.assert_allclose(bare, hidden[:, 0], atol=1e-6)
    kernel, bias = model.head.get_weights()
    expected = hidden[:, 0] @ kernel + bias
    np.testing.assert_allclose(outputs(model, random_images()), expected, atol=1e-5)
    model = make(pooling="mean", representation_dim=11)
    hidden = ops.convert_to_numpy(model.encoder(random_images())).mean(axis=1)
    inner, bias = model.representation.get_weights()
    kernel, head_bias = model.head.get_weights()
    expected = np.tanh(hidden @ inner + bias) @ kernel + head_bias
    np.testing.assert_allclose(outputs(model, random_images()), expected, atol=1e-5)


def test_images_of_another_size():
    model = make(resize_positions=True)
    assert outputs(model, random_images(height=8, width=2)).shape == (3, 7)
    fixed = make()
    fixed.set_weights(model.get_weights())
    images = random_images()
    np.testing.assert_array_equal(outputs(model, images), outputs(fixed, images))
    with pytest.raises(ValueError, match="4 pixels high and 6 wide"):
        fixed(random_images(height=8, width=2))


def test_within_a_functional_model_saved_and_loaded(tmp_path):
    dtype = "mixed_bfloat16"  # test_new_process.py has a model in float32
    given = keras.Input((4, 6, 3))
    vit = make(**VARIANTS["all at once"], dtype=dtype)
    model = keras.Model(given, keras.layers.Softmax()(vit(given)))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(outputs(loaded, random_images()), outputs(model, random_images()))
    assert loaded.layers[1].get_config() == vit.get_config()
    assert {layer.dtype_policy.name for layer in nested_layers(vit)} == {dtype}


def test_a_step_moves_all_weights(variant, run_eagerly):
    model = make(**variant)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=run_eagerly)
    before = model.get_weights()
    model.train_on_batch(random_images(), np.array([1, 4, 6]))
    for weight, old in zip(model.weights, before, strict=True):
        moved = np.abs(ops.convert_to_numpy(weight) - old).max() > 1e-7
        # softmax takes no notice of what all keys of a query have in common
        assert moved or "key/bias" in weight.path, weight.path


@pytest.mark.slow  # that positions and pixels count, and every weight learns, is tested above
def test_it_learns_where_a_spot_is():
    """The class is the quarter of the image that is brighter: nothing but positions tells it."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    labels = rng.integers(4, size=400)
    images = rng.normal(scale=0.3, size=(400, 8, 8, 1)).astype("float32")
    for image, label in zip(images, labels, strict=True):
        top, left = 4 * (label // 2) + rng.integers(3), 4 * (label % 2) + rng.integers(3)
        image[top : top + 2, left : left + 2] += 2.0
    model = VisionTransformer(4, image_size=8, patch_size=4, num_channels=1, num_layers=1,
                              d_model=16, ff_dim=32, num_heads=2, dropout=0.0)  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(images[:300], labels[:300], batch_size=30, epochs=14, verbose=0)
    assert np.mean(outputs(model, images[300:]).argmax(axis=-1) == labels[300:]) >= 0.95


def expected_count(num_layers, d_model, ff_dim, num_patches, patch_values, num_classes):
    """Eq. 1 to 4, with biases on every projection."""
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = d_model * ff_dim + ff_dim + ff_dim * d_model + d_model
    blocks = num_layers * (attention + feed_forward + 4 * d_model)
    embedding = patch_values * d_model + d_model + d_model + (num_patches + 1) * d_model
    return embedding + blocks + 2 * d_model + d_model * num_classes + num_classes


def test_the_parameters_of_the_base_model(without_values):
    """Table 1 says 86 million; timm and torchvision count 86,567,656 with 1,000 classes."""
    assert expected_count(12, 768, 3072, 196, 16 * 16 * 3, 1000) == 86_567_656
    model = without_values(VisionTransformer.from_preset, "vit_b_16", 1000)
    default = without_values(VisionTransformer, 1000, name=model.name)
    assert default.get_config() == model.get_config()
    assert model.num_layers == len(model.encoder.blocks) == 12
    model = without_values(VisionTransformer.from_preset, "vit_b_16", 1000, num_layers=1)
    whole, block = (
        sum(int(np.prod(weight.shape)) for weight in layer.weights)
        for layer in (model, model.encoder.blocks[0])
    )
    assert whole + 11 * block == 86_567_656
    assert make(num_layers=2).count_params() == expected_count(2, 10, 17, 6, 12, 7)
    with pytest.raises(ValueError, match="vit_b_16"):
        VisionTransformer.from_preset("base", 10)


@pytest.mark.slow
def test_a_step_of_the_base_model():
    model = VisionTransformer.from_preset("vit_b_16", 1000)
    model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(True))
    images = np.random.default_rng(1).normal(size=(2, 224, 224, 3)).astype("float32")
    losses = [float(model.train_on_batch(images, np.array([3, 999]))) for _ in range(2)]
    assert np.all(np.isfinite(losses)) and model.count_params() == 86_567_656


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(num_heads=3), "divisible by num_heads. Received: d_model=10, num_heads=3"),
        (dict(patch_size=4), "must divide .* patch_size=4, height=4, width=6"),
        (dict(pooling="max"), "class_token.*Received: pooling='max'"),
        (dict(num_classes=0), "num_classes must be a whole number"),
        (dict(num_channels=0), "num_channels must be a whole number"),
        (dict(num_layers=0), "num_layers must be a whole number"),
        (dict(representation_dim=0), "representation_dim must be a whole number"),
        (dict(activation="step"), "Received: activation='step'"),
        (dict(d_model="10"), "d_model must be a whole number"),
        (dict(num_heads=None), "num_heads must be a whole number"),
        (dict(dropout="0.1"), "Received: dropout='0.1'"),
        (dict(layer_norm_epsilon=-1.0), "Received: epsilon=-1.0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        VisionTransformer(**{**SIZES, **arguments})


@pytest.mark.parametrize("shape", [(4, 6, 3), (2, 4, 6), (2, 4, 6, 1), (2, 3, 4, 6), (2, 6, 4, 3)])
def test_other_images_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must .*Received: images.shape=\("):
        shared()(np.zeros(shape, "float32"))
    with pytest.raises(ValueError, match="images must have shape"):
        shared()(None)


@pytest.mark.parametrize("resize_positions", [False, True])
def test_images_of_a_size_that_is_not_known(resize_positions):
    model = shared(resize_positions=resize_positions)
    inputs = keras.Input((None, None, 3))
    functional = keras.Model(inputs, model(inputs))
    for size in ((4, 6), (8, 2)) if resize_positions else ((4, 6),):
        images = np.random.default_rng(1).normal(size=(2, *size, 3)).astype("float32")
        expected = ops.convert_to_numpy(model(images))
        np.testing.assert_allclose(ops.convert_to_numpy(functional(images)), expected, atol=1e-5)


def test_a_config_is_plain_data():
    assert json.loads(json.dumps(make().get_config()))["image_size"] == [4, 6]


# === Maps of the class token's attention, against loops written from the definitions ===

GRID = (2, 3)


@pytest.fixture
def weights():
    """Of 3 blocks, 2 images, 5 heads."""
    scores = np.exp(np.random.default_rng(1).normal(size=(3, 2, 5, 7, 7)))
    return list((scores / scores.sum(axis=-1, keepdims=True)).astype("float32"))


def test_the_last_layer(weights):
    found = class_token_attention(weights, GRID)
    assert found.shape == (2, 2, 3)
    for image in range(2):
        mean = sum(weights[2][image, head, 0, 1:] for head in range(5)) / 5
        np.testing.assert_allclose(found[image].ravel(), mean / mean.sum(), rtol=1e-5)


def test_rollout_counts_all_paths_to_the_class_token(weights):
    """Each block passes on half of a position and half of what it attends to."""
    found = attention_rollout(weights, GRID)
    for image in range(2):
        steps = [(layer[image].mean(axis=0) + np.eye(7)) / 2 for layer in weights]
        share = np.zeros(7)
        for last in range(7):
            for middle in range(7):
                for first in range(7):
                    share[first] += (
                        steps[2][0, last] * steps[1][last, middle] * steps[0][middle, first]
                    )
        np.testing.assert_allclose(found[image].ravel(), share[1:] / share[1:].sum(), rtol=1e-5)


def test_one_block_that_looks_at_one_patch():
    weights = np.zeros((1, 1, 7, 7), "float32")
    weights[..., 5] = 1.0
    for function in (class_token_attention, attention_rollout):
        np.testing.assert_array_equal(function([weights], GRID)[0], [[0, 0, 0], [0, 1, 0]])


def test_a_class_token_that_looks_at_itself_alone_has_an_empty_map():
    weights = [np.broadcast_to(np.eye(7, dtype="float32"), (1, 1, 7, 7))]
    for function in (class_token_attention, attention_rollout):
        np.testing.assert_array_equal(function(weights, GRID)[0], np.zeros(GRID))


@pytest.mark.parametrize("weights", [[], [np.zeros((7, 7))]], ids=["none", "rank 2"])
def test_weights_that_are_none_of_a_block_are_refused(weights):
    for function in (class_token_attention, attention_rollout):
        with pytest.raises(ValueError, match="one for each block. Received: weights of the ranks"):
            function(weights, GRID)


def test_another_grid_is_refused(weights):
    with pytest.raises(ValueError, match=r"1 \+ 2 x 2 positions.*weights of 7 positions"):
        class_token_attention(weights, (2, 2))
