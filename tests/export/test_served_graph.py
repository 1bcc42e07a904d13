"""What the graph itself guards, whichever server runs it: fed as a server feeds it, unchecked."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.decoding.hypotheses import SearchResult
from keras_transformer.export import search_by_length

NAMES = ["serving_default", "n_best", "constrained", "attention", "forced_attention", "score"]
NAMES += ["explain", "encode", "decode"]


@pytest.fixture(scope="module")
def meta_graph(exported):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((exported / "saved_model.pb").read_bytes())
    return saved.meta_graphs[0]


def readers(functions, nodes, name):
    """Yields the operations that read a tensor, also those within the functions it is given to."""
    for node in nodes:
        inputs = [each for each in node.input if not each.startswith("^")]
        for place, given in enumerate(inputs):
            if given.partition(":")[0] != name:
                continue
            if "PartitionedCall" in node.op:
                called = functions[node.attr["f"].func.name]
                inner = called.signature.input_arg[place].name
                yield from readers(functions, called.node_def, inner)
            else:
                yield node.op


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_check_of_its_rank_reads_an_input(meta_graph, name):
    graph = meta_graph.graph_def
    functions = {each.signature.name: each for each in graph.library.function}
    inputs = meta_graph.signature_def[name].inputs
    assert inputs
    for info in inputs.values():
        found = set(readers(functions, graph.node, info.name.partition(":")[0]))
        assert found == {"EnsureShape"}


@pytest.fixture(scope="module")
def refusals(exported):
    """What the graph says of inputs whose rank is wrong, fed as by the C API: without a check.

    Of two signatures: a session takes seconds to prepare each.

    Returns:
        Dict from the name of a signature to the list of its answers.
    """
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(exported))

        def output(info):
            return session.graph.get_tensor_by_name(info.name)._as_tf_output()

        def answer(signature, shape):
            ids = np.full([*shape, 2] if len(shape) != 1 else [2], 5, "int32")
            values = {"ids": ids, "text": np.full(shape, b"A dog.", object)}
            values["target"] = values["prefix"] = values["text"]
            values["terms"] = np.full([*shape, 1] if len(shape) != 1 else [1], b"", object)
            feeds = {output(info): values[key] for key, info in signature.inputs.items()}
            fetches = [output(info) for info in signature.outputs.values()]
            try:
                session._call_tf_sessionrun(None, feeds, fetches, [], None)
            except tf.errors.OpError as error:
                return error.message.splitlines()[0]
            return "no refusal"

        return {
            name: [answer(signature, shape) for shape in ([], [1, 1], [2, 2])]
            for name, signature in meta_graph.signature_def.items()
            if name in ("score", "decode")
        }


@pytest.mark.parametrize("name", ["score", "decode"])
def test_another_rank_is_refused(refusals, name):
    assert len(refusals[name]) == 3
    for answer in refusals[name]:
        assert "is not compatible with expected shape" in answer


def test_a_large_batch_is_searched_in_parts(translator, monkeypatch):
    ids = tf.constant([[5, 6, 3, 0]] * 7 + [[5, 6, 7, 3]] * 4)
    sizes = []

    def search(source_ids, _):
        tf.py_function(lambda n: sizes.append(int(n)), [tf.shape(source_ids)[0]], [])
        num = tf.shape(source_ids)[0]
        return SearchResult(
            ids=source_ids[:, None, :1],
            scores=tf.cast(source_ids[:, :1], tf.float32),
            lengths=tf.ones([num, 1], tf.int32),
            finished=tf.ones([num, 1], tf.bool),
        )

    monkeypatch.setattr(search_by_length, "MAX_TOGETHER", 12)
    found = search_by_length.search_by_length(search, ids, 1, 2)
    assert sizes == [3, 3, 3, 2] and found.finished.numpy().all()
