"""Runs a SavedModel in a session, as TensorFlow Serving does: a program for a fresh process.

    python serving_session.py SAVED_MODEL < batches.json > answers.json

A batch is the only input of `serving_default`, such as texts, and an answer has its outputs by
name, all as written by `packed`. As on a stock server, the model is loaded into a session, XLA
compilation is disabled, there is no GPU, and only TensorFlow and tensorflow-text's operations are
loaded: no Keras, nothing of keras_transformer.
"""

import base64
import ctypes
import json
import pathlib
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizers' operations
from tensorflow.core.framework import tensor_pb2


def disable_xla():
    """Calls `tensorflow::DisableXlaCompilation()`, as a stock server does when it starts.

    The C++ function has no Python name, so it is called by the mangled name that TensorFlow's
    library exports; where that has changed, `AttributeError` names it and the export fails.
    """
    (library,) = pathlib.Path(tf.sysconfig.get_lib()).glob("libtensorflow_cc.*")
    ctypes.CDLL(library)["_ZN10tensorflow21DisableXlaCompilationEv"]()


def xla_in(graph_def):
    """Returns the names of the operations and functions of a graph that need XLA."""
    nodes = [*graph_def.node, *(node for f in graph_def.library.function for node in f.node_def)]
    found = [node.op for node in nodes if "Xla" in node.op]
    found += [node.name for node in nodes if node.attr["_XlaMustCompile"].b]
    found += [f.signature.name for f in graph_def.library.function if f.attr["_XlaMustCompile"].b]
    return sorted(set(found))


def packed(array):
    """Returns an array, also one of bytes, as a str for JSON; `unpacked` is the inverse."""
    return base64.b64encode(tf.make_tensor_proto(array).SerializeToString()).decode()


def unpacked(text):
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(base64.b64decode(text)))


def answer(saved_model, batches):
    """Returns, for each batch, the outputs of `serving_default`: dict from name to array."""
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], saved_model)
        if found := xla_in(meta_graph.graph_def):
            raise ValueError(f"Expected a graph without XLA, which servers disable. Found: {found}")
        signature = meta_graph.signature_def["serving_default"]
        (rows,) = (info.name for info in signature.inputs.values())
        outputs = {key: info.name for key, info in signature.outputs.items()}
        return [session.run(outputs, {rows: batch}) for batch in batches]


def main():
    disable_xla()
    batches = [unpacked(batch) for batch in json.load(sys.stdin)]
    answers = answer(sys.argv[1], batches)
    json.dump([{key: packed(x) for key, x in outputs.items()} for outputs in answers], sys.stdout)


if __name__ == "__main__":
    main()
