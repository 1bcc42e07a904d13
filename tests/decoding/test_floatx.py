"""Searches while Keras's default dtype is another than float32."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import Shortlist, decode, score
from keras_transformer.models import RnnSeq2Seq, Transformer
from keras_transformer.special_ids import shift_right

V = 211


@pytest.fixture
def floatx():
    before = keras.config.floatx()
    yield keras.config.set_floatx
    keras.config.set_floatx(before)


def transformer():
    return Transformer(V, num_layers=1, d_model=12, ff_dim=20, num_heads=2)


def rnn():
    return RnnSeq2Seq(V, num_layers=1, d_model=12, units=10)


CASES = [("float64", transformer, 3), ("float64", rnn, 3)]
if keras.backend.backend() == "tensorflow":  # elsewhere Keras rounds Python's numbers to 16 bits
    CASES += [("float16", transformer, 1), ("bfloat16", transformer, 3)]


@pytest.mark.parametrize("name, make, beam_size", CASES)
def test_their_scores_are_those_of_the_model(floatx, name, make, beam_size):
    floatx(name)
    keras.utils.set_random_seed(3)
    model = make()
    source_ids = np.array([[5, 9, 7, 3], [8, 3, 0, 0]], "int32")
    settings = DecodingConfig(beam_size=beam_size, max_length=4)
    found = decode(model, source_ids, settings)
    ids = ops.convert_to_numpy(found.ids[:, 0])
    logits = model({"source_ids": source_ids, "target_ids": shift_right(ids, ops)})
    expected = ops.convert_to_numpy(score(ops.cast(logits, "float32"), ids))
    scores = ops.convert_to_numpy(found.scores[:, 0])
    np.testing.assert_allclose(scores, expected, rtol=1e-4 if name == "float64" else 0.03)

    everything = ops.tile(ops.arange(V, dtype="int32")[None], (2, 1))
    listed = decode(model, source_ids, settings, shortlist=Shortlist.of(everything, V))
    np.testing.assert_allclose(ops.convert_to_numpy(listed.scores[:, 0]), scores, rtol=0.03)
