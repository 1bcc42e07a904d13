"""Translates with a SavedModel as TensorFlow Serving does: a program for a fresh process.

    python fresh_process.py SAVED_MODEL < batches.json > answers.json

A batch is a list of texts in base64, an answer [translation, score, truncated]. As on a stock
server, the model is loaded into a session, XLA compilation is disabled, there is no GPU to lean
on, and of all Python's packages only tensorflow-text's operations are there: no Keras, nothing of
keras_transformer.
"""

import base64
import ctypes
import json
import pathlib
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizers' operations


def disable_xla():
    """Calls `tensorflow::DisableXlaCompilation()`, as a stock server does when it starts."""
    (library,) = pathlib.Path(tf.sysconfig.get_lib()).glob("libtensorflow_cc.*")
    ctypes.CDLL(library)["_ZN10tensorflow21DisableXlaCompilationEv"]()


def xla_in(graph_def):
    """Returns the names of all operations and functions of a graph that need XLA."""
    nodes = [*graph_def.node, *(node for f in graph_def.library.function for node in f.node_def)]
    found = [node.op for node in nodes if "Xla" in node.op]
    found += [node.name for node in nodes if node.attr["_XlaMustCompile"].b]
    found += [f.signature.name for f in graph_def.library.function if f.attr["_XlaMustCompile"].b]
    return sorted(set(found))


def translate(saved_model, batches):
    """Returns, for each batch of texts, the list of (translation, score, truncated)."""
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], saved_model)
        if found := xla_in(meta_graph.graph_def):
            raise ValueError(f"Expected a graph without XLA, which servers disable. Found: {found}")
        signature = meta_graph.signature_def["serving_default"]
        text = signature.inputs["text"].name
        outputs = [signature.outputs[key].name for key in ("translation", "score", "truncated")]
        return [list(zip(*session.run(outputs, {text: batch}), strict=True)) for batch in batches]


def main():
    disable_xla()
    batches = [[base64.b64decode(text) for text in batch] for batch in json.load(sys.stdin)]
    answers = [
        [(text.decode("utf-8"), float(score), bool(truncated)) for text, score, truncated in batch]
        for batch in translate(sys.argv[1], batches)
    ]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
