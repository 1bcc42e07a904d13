"""What several layers or models share is one object again in a model that was saved and loaded."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Decoder, Encoder, RnnDecoder, RnnEncoder, TokenEmbedding
from keras_transformer.models import Bert, BertClassifier, BertTokenClassifier, ImageCaptioner

V, D = 19, 12
STACK = dict(num_layers=1, num_heads=3, ff_dim=17, positions=None)


def translation_model():
    embedding = TokenEmbedding(V, D)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    x = Encoder(embedding, **STACK)(source)
    x = Decoder(embedding, **STACK)(target, x)
    return keras.Model([source, target], embedding.project(x))


def recurrent_model():
    embedding = TokenEmbedding(V, D)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    x, state = RnnEncoder(embedding, 1, 7)(source, return_state=True)
    x = RnnDecoder(embedding, 1, 7)(target, x, encoder_state=state)
    return keras.Model([source, target], embedding.project(x))


def two_classifiers():
    bert = Bert(V, num_layers=1, d_model=D, ff_dim=17, num_heads=3, max_length=9)
    ids, others = (keras.Input((None,), dtype="int32") for _ in range(2))
    of_texts, of_tokens = BertClassifier(bert, 5), BertTokenClassifier(bert, 4)
    return keras.Model([ids, others], [of_texts(ids), of_tokens(others)])


def two_captioners():
    decoder = Decoder(TokenEmbedding(V, D), **STACK)
    sizes = dict(image_size=4, num_channels=1, num_convolutions=1, d_model=D, num_heads=3)
    images, ids = keras.Input((4, 4, 1)), keras.Input((None,), dtype="int32")
    models = [
        ImageCaptioner(V, **sizes, features="convolutional", decoder=decoder) for _ in range(2)
    ]
    inputs = {"images": images, "target_ids": ids}
    return keras.Model([images, ids], [model(inputs) for model in models])


def assert_same_outputs(model, other, inputs):
    outputs = (keras.tree.flatten(each(inputs)) for each in (model, other))
    for one, two in zip(*outputs, strict=True):
        one, two = map(ops.convert_to_numpy, (one, two))
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "make", [translation_model, recurrent_model, two_classifiers, two_captioners]
)
def test_what_is_shared_is_saved_and_loaded_once(make, tmp_path):
    model = make()
    rng = np.random.default_rng(5)
    inputs = [
        rng.integers(4, V, size=(2, 5)).astype("int32")
        if "int" in x.dtype
        else rng.normal(size=(2, *x.shape[1:])).astype("float32")
        for x in model.inputs
    ]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.count_params() == model.count_params()

    # one weight for all that share it
    place = next(i for i, weight in enumerate(model.weights) if "embeddings" in weight.path)
    for weights in (model.weights, loaded.weights):
        weights[place].assign(weights[place] * 2.0)
    assert_same_outputs(loaded, model, inputs)
