"""Bert, its classifiers and the Vision Transformer by Keras's own `export`, tensors to tensors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.models import Bert, BertClassifier, VisionTransformer

SIZES = dict(num_layers=1, d_model=16, ff_dim=12, num_heads=2)
IDS = np.array([[2, 7, 3, 5, 3], [2, 8, 3, 0, 0], [0, 0, 0, 0, 0]], "int32")
SEGMENTS = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], "int32")
OTHER_SIZES = [slice(None), np.s_[:2], np.s_[:1, :3]]


def spec(name):
    return keras.InputSpec(dtype="int32", shape=(None, None), name=name)


def exported(model, path, **options):
    model.export(path, format="tf_saved_model", verbose=False, **options)
    return tf.saved_model.load(path)


def assert_equal(ours, theirs):
    tf.nest.assert_same_structure(ours, theirs)
    for x, y in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.fixture(scope="module")
def bert():
    return Bert(20, **SIZES, max_length=8)


def test_bert(tmp_path):
    arrays = {"ids": IDS, "segment_ids": SEGMENTS}  # the classifier's export has no segments
    bert = Bert(20, **SIZES, max_length=8)  # never called before it is exported
    saved = exported(bert, tmp_path, input_signature=[{name: spec(name) for name in arrays}])
    for part in OTHER_SIZES:
        inputs = {name: tf.constant(array[part]) for name, array in arrays.items()}
        assert_equal(bert(inputs), dict(saved.serve(inputs)))
        assert_equal(bert(inputs), saved.signatures["serving_default"](**inputs))


def test_a_classifier(bert, tmp_path):
    model = BertClassifier(bert, num_classes=3)  # never called before it is exported
    saved = exported(model, tmp_path, input_signature=[spec("ids")])
    for part in OTHER_SIZES:
        ids = tf.constant(IDS[part])
        assert_equal(model(ids), saved.serve(ids))
        (logits,) = saved.signatures["serving_default"](ids=ids).values()
        assert_equal(model(ids), logits)


def test_a_functional_model_with_attention_weights(bert, tmp_path):
    """A SavedModel has no nested outputs, so the weights of a layer stand beside the others."""
    names = "ids", "segment_ids"
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    outputs, weights = bert(inputs, return_attention_weights=True)
    model = keras.Model(inputs, {**outputs, "weights": weights["encoder"][0]})
    saved = exported(model, tmp_path)
    arrays = {"ids": tf.constant(IDS), "segment_ids": tf.constant(SEGMENTS)}
    outputs, weights = bert(arrays, return_attention_weights=True)
    expected = {**outputs, "weights": weights["encoder"][0]}
    assert_equal(expected, dict(saved.serve(arrays)))


def test_a_vision_transformer(tmp_path):
    model = VisionTransformer(4, (8, 12), 4, num_channels=1, **SIZES, resize_positions=True)
    images = np.random.default_rng(1).random((3, 8, 12, 1), "float32")
    any_size = keras.InputSpec("float32", (None, None, None, 1))
    saved = exported(model, tmp_path, input_signature=[any_size])
    for batch in (images, images[:1], images[:2, :, :8]):
        assert_equal(model(batch), saved.serve(tf.constant(batch)))
