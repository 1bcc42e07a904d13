"""Token embedding: the scale, and the projection on the same table."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import TokenEmbedding

V, D = 13, 6


def test_looks_up_scaled_rows():
    layer = TokenEmbedding(V, D)
    ids = np.array([[4, 12, 0], [7, 7, 1]])
    output = ops.convert_to_numpy(layer(ids))
    (table,) = layer.get_weights()
    assert table.shape == (V, D)
    np.testing.assert_allclose(output, table[ids] * np.sqrt(D), rtol=1e-6)


def test_what_comes_out_has_unit_variance():
    output = ops.convert_to_numpy(TokenEmbedding(997, 64)(np.arange(997)[None]))
    assert abs(output.mean()) < 0.02 and abs(output.std() - 1) < 0.02


def test_projects_on_the_same_table():
    layer = TokenEmbedding(V, D)
    layer.build()
    (table,) = layer.get_weights()
    hidden = np.random.default_rng(1).normal(size=(2, 3, D)).astype("float32")
    logits = ops.convert_to_numpy(layer.project(hidden))
    np.testing.assert_allclose(logits, hidden @ table.T, rtol=1e-5, atol=1e-6)


def test_a_functional_model_trains_and_saves_the_one_table(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    layer = TokenEmbedding(V, D)
    model = keras.Model(ids, layer.project(layer(ids)))
    assert [tuple(weight.shape) for weight in model.weights] == [(V, D)]
    batch = np.array([[3, 5, 8]])
    table = np.random.default_rng(1).normal(size=(V, D)).astype("float32")
    layer.set_weights([table])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for scale in (1.0, 2.0):  # both ends of the model follow the weight
        loaded.set_weights([scale * table])
        expected = scale**2 * np.sqrt(D) * table[batch] @ table.T
        logits = ops.convert_to_numpy(loaded(batch))
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_ids_that_come_as_floats_keep_their_value_in_mixed_precision():
    layer = TokenEmbedding(997, D, dtype="mixed_bfloat16")  # bfloat16 has 8 bits: 995 becomes 996
    ids = np.array([[995, 513, 2]])
    as_floats = layer(ops.convert_to_tensor(ids.astype("float32")))
    assert ops.dtype(as_floats) == "bfloat16" and layer.embeddings.dtype == "float32"
    difference = ops.cast(as_floats, "float32") - ops.cast(layer(ids), "float32")
    assert np.all(ops.convert_to_numpy(difference) == 0)
    assert ops.dtype(layer.project(as_floats)) == "bfloat16"


@pytest.mark.parametrize("sizes", [(0, D), (V, 0)])
def test_a_size_below_one_is_refused(sizes):
    with pytest.raises(ValueError, match=f"Received: vocab_size={sizes[0]}, d_model={sizes[1]}"):
        TokenEmbedding(*sizes)


def test_embeddings_can_be_left_unscaled_and_begin_narrower():
    layer = TokenEmbedding(2000, 50, scale=False, stddev=0.02)
    rows = ops.convert_to_numpy(layer(np.arange(2000)[None]))
    np.testing.assert_array_equal(rows[0], ops.convert_to_numpy(layer.embeddings))
    assert rows.std() == pytest.approx(0.02, rel=0.02)
    assert not ops.convert_to_numpy(TokenEmbedding(9, 4, stddev=0.0)(np.arange(9)[None])).any()


def test_ids_outside_the_vocabulary_are_refused_in_an_array():
    layer = TokenEmbedding(9, 4)
    for wrong in ([[9]], [[3, -1]]):
        with pytest.raises(ValueError, match="Expected inputs from 0 to 8, .* Received: inputs fr"):
            layer(np.array(wrong))
    assert layer(np.full((1, 4), 9.0), reverse=True).shape == (1, 9)
