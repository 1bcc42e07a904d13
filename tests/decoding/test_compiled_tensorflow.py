"""What only TensorFlow has: graphs of unknown shapes, and sessions without XLA."""

import functools

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow's own graphs", allow_module_level=True)


import tensorflow as tf
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import beam_search, decode, decode_sampled, score
from keras_transformer.layers import DecodingState
from keras_transformer.models import Transformer
from keras_transformer.special_ids import shift_right

END = 3


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    model = Transformer(29, num_layers=1, d_model=12, ff_dim=20, num_heads=2)
    model.build()
    return model


def settings(beam_size):
    return DecodingConfig(beam_size=beam_size, max_length=6)


def batch(*lengths):
    ids = np.zeros((len(lengths), max(lengths, default=0) + 1), "int32")
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = np.arange(4, 4 + length)
        row[length] = END
    return ids


def forced_score(model, ids):
    return score(model({"source_ids": ids, "target_ids": shift_right(ids, ops)}), ids)


SEARCHES = {
    "greedy": lambda model, ids: decode(model, ids, settings(1)),
    "beam": lambda model, ids: decode(model, ids, settings(3), 2),
    "sample": lambda model, ids: decode_sampled(model, ids, settings(1), 1.3, 5, 0.9, seed=3),
    "score": lambda model, ids: (forced_score(model, ids),),
}


@pytest.fixture(scope="module")
def graph_of(model):
    """From the name of a search to its graph of unknown shapes, traced once for all tests."""

    @functools.cache
    def graph_of(name):
        return tf.function(
            lambda ids: SEARCHES[name](model, ids),
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
        )

    return graph_of


def test_a_batch_size_that_is_known_with_a_length_that_is_not(model):
    ids = batch(7)
    graph = tf.function(
        lambda ids: SEARCHES["beam"](model, ids),
        input_signature=[tf.TensorSpec([1, None], tf.int32)],
        autograph=False,
    )
    for found, expected in zip(graph(ids), SEARCHES["beam"](model, ids), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SEARCHES)
def test_one_graph_serves_every_shape(model, graph_of, name):
    graph = graph_of(name)
    for ids in (batch(5, 2, 11), batch(7)):
        for found, expected in zip(graph(ids), SEARCHES[name](model, ids), strict=True):
            assert found.dtype == expected.dtype
            if found.dtype == tf.float32:
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(found, expected)
    for part in graph(np.zeros((0, 5), "int32")):
        assert part.shape[0] == 0


@pytest.mark.parametrize("name", SEARCHES)
def test_the_graph_has_no_xla_operation(graph_of, name):
    concrete = graph_of(name).get_concrete_function()
    definition = concrete.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    names = {node.op for node in nodes}
    assert names & {"MatMul", "BatchMatMulV2"} and not [
        name for name in names if "xla" in name.lower()
    ]
    assert not [name for name in names if "TensorArray" in name or "TensorList" in name]
    assert not any("_XlaMustCompile" in node.attr for node in nodes)


def test_runs_in_a_session(toy_model, tmp_path):
    """As TensorFlow Serving runs it: a saved graph of unknown batch, a session, no eager mode."""
    toy, beam_size = toy_model(6, batch_size=5, vocab_size=11, end_bias=1.0), 3
    limits = np.array([19, 2, 5, 1, 13], "int32")  # more than a cache begins with

    def search(limits, sentences):
        state, prompts = toy.start(beam_size, 19)
        rows = tf.reshape(sentences[:, None] * beam_size + tf.range(beam_size), [-1])
        cache = {name: tf.gather(tensor, rows) for name, tensor in state.cache.items()}
        memory = {name: tf.gather(tensor, sentences) for name, tensor in state.memory.items()}
        start = toy.step, DecodingState(cache, memory), tf.gather(prompts, sentences), limits, 19
        return beam_search(*start, beam_size)

    module = tf.Module()
    module.search = tf.function(
        lambda limits, sentences: search(limits, sentences)._asdict(),
        input_signature=[tf.TensorSpec([None], tf.int32, name) for name in ("limits", "sentences")],
        autograph=False,
    )
    tf.saved_model.save(module, tmp_path, signatures=module.search)
    sentences = np.arange(5)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path))
        signature = loaded.signature_def["serving_default"]
        outputs = {name: info.name for name, info in signature.outputs.items()}
        fed = signature.inputs["limits"].name, signature.inputs["sentences"].name
        found = session.run(outputs, dict(zip(fed, (limits, sentences), strict=True)))
        none = session.run(outputs, dict(zip(fed, (limits[:0], sentences[:0]), strict=True)))
    for name, expected in search(limits, sentences)._asdict().items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)
        assert none[name].shape == (0, *expected.shape[1:])
