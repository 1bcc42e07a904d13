"""An export for CTranslate2, behind the same interface as a loaded SavedModel.

Shapes: B batch (texts), K translations of each text, S source length.
"""

import functools
import json

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo

from keras_transformer.decoding.batch_search import padded_rows
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.files.version_numbers import EXPORT_SETTINGS
from keras_transformer.serving.loaded_model import DEFAULT_SIGNATURE, PREDICT, Signature
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.translation.exported_translator import ctranslate2_search

TEXT, SCORE, IDS = (tf.string, (None,)), (tf.float32, (None,)), (tf.int32, (None, None))


class LoadedCTranslate2:
    """A version for CTranslate2, ready to answer. Attributes: see `LoadedModel`.

    It has the signatures of a SavedModel but `attention`, with the same inputs and outputs. A run
    cannot be stopped: the client of a late one is answered, but its thread goes on to the end of
    the search, which `max_length` limits.

    Args:
        path: `pathlib.Path` of the directory.
    Raises:
        ValueError: CTranslate2 is not installed.
        RuntimeError, OSError: files are missing or incomplete.
    """

    card: dict = {}

    def __init__(self, path):
        settings = json.loads((path / EXPORT_SETTINGS).read_text())
        self._search = ctranslate2_search(path, settings)
        self._n_best = settings["n_best"]
        self._ids = {token: i for i, token in enumerate(self._search.source_tokens)}
        self._pieces = self._search.target_tokens
        text, many = {"text": TEXT}, (None, self._n_best)
        best = {"translation": TEXT, "score": SCORE, "truncated": (tf.bool, (None,))}
        n_best = {
            "translations": (tf.string, many),
            "scores": (tf.float32, many),
            "truncated": (tf.bool, many),
        }
        signatures = {
            DEFAULT_SIGNATURE: (text, best, functools.partial(self._search_for, best)),
            "n_best": (text, n_best, functools.partial(self._search_for, n_best)),
            "score": ({"text": TEXT, "target": TEXT}, {"score": SCORE}, self._score),
            "encode": (text, {"ids": IDS}, self._encode),
            "decode": ({"ids": IDS}, text, self._decode),
        }
        self.signatures = {
            name: FunctionSignature(name, *signature) for name, signature in signatures.items()
        }
        self.signature_defs = {name: s.signature_def for name, s in self.signatures.items()}
        self._search.translate([b"."])  # the first client does not wait

    def _search_for(self, outputs, text):
        """Returns the outputs of a search by name, in the order text, score, truncated."""
        shape = (len(text), *next(iter(outputs.values()))[1][1:])  # (B,) or (B, K)
        rows = self._search.translate(text, *shape[1:])
        if shape[1:]:  # `Signatures` says how a text with fewer translations is answered
            rows = [[*row, *[("", IMPOSSIBLE, False)] * (shape[1] - len(row))] for row in rows]
        columns = zip(*(hypothesis for row in rows for hypothesis in row), strict=True)
        texts, scores, truncated = columns if rows else ((), (), ())
        columns = [one.encode() for one in texts], scores, truncated
        return {
            name: np.array(column, dtype).reshape(shape)
            for name, column, dtype in zip(outputs, columns, (object, "float32", bool), strict=True)
        }

    def _score(self, text, target):
        if len(text) != len(target):
            raise tf.errors.InvalidArgumentError(None, None, "Expected a target for each text")
        return {"score": np.array(self._search.score(text, target), np.float32)}

    def _encode(self, text):
        rows = [self._search.read(one)[0] for one in text]
        rows = [[*(self._ids.get(token, UNKNOWN_ID) for token in row), END_ID] for row in rows]
        return {"ids": padded_rows(rows or [[PAD_ID]])[: len(rows)]}

    def _decode(self, ids):
        """Leaves out what `Tokenizer.decode` does; an id outside the vocabulary is unknown."""
        texts = []
        for row in ids.tolist():
            row = row[: row.index(END_ID)] if END_ID in row else row
            row = [i if 0 <= i < len(self._pieces) else UNKNOWN_ID for i in row]
            tokens = [self._pieces[i] for i in row if i not in (PAD_ID, START_ID)]
            texts.append(self._search.write(tokens).encode())
        return {"text": np.array(texts, object)}

    def warm_up_others(self):
        """Does nothing: all signatures run the same search."""

    def close(self):
        """Frees the memory of the model."""
        self._search.close()


class FunctionSignature(Signature):
    """A signature that is a function of NumPy arrays.

    Args:
        name: str.
        inputs, outputs: dicts from name to `(dtype, shape)`.
        function: takes the inputs by name, and returns a dict with the outputs.
    """

    def __init__(self, name, inputs, outputs, function):
        self.signature_def = SignatureDef(
            inputs=_infos(inputs), outputs=_infos(outputs), method_name=PREDICT
        )
        super().__init__(name, self.signature_def, None, None)
        self._function = function

    def __call__(self, inputs, timeout=None):
        found = self._function(**{name: inputs[name] for name in self.inputs})
        return {name: found[name] for name in self.outputs}


def _infos(tensors):
    return {
        key: TensorInfo(name=f"{key}:0", dtype=dtype.as_datatype_enum, tensor_shape=shape)
        for key, (dtype, shape) in tensors.items()
        for shape in [tf.TensorShape(shape).as_proto()]
    }
