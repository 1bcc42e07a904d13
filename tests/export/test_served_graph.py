"""What the graph itself guards, whichever server runs it: fed as a server feeds it, unchecked."""

import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformer.decoding.search_result import SearchResult
from keras_transformer.export import signatures

PROGRAM = pathlib.Path(__file__).with_name("unchecked_feeds.py")


@pytest.fixture(scope="module")
def refusals(exported):
    """What a session says, in a process of its own, of inputs whose rank is wrong: name to text."""
    command = [sys.executable, PROGRAM, exported]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    return {(name, shape): answer for name, shape, answer in lines}


@pytest.mark.parametrize(
    "name", ["serving_default", "n_best", "attention", "score", "encode", "decode"]
)
def test_every_signature_refuses_another_rank(refusals, name):
    found = [answer for (signature, _), answer in refusals.items() if signature == name]
    assert len(found) == 3
    assert all("is not compatible with expected shape" in answer for answer in found), found


def test_a_large_batch_is_searched_in_parts(translator, monkeypatch):
    ids = tf.constant([[5, 6, 3, 0]] * 7 + [[5, 6, 7, 3]] * 4)
    sizes = []

    def search(source_ids):
        tf.py_function(lambda n: sizes.append(int(n)), [tf.shape(source_ids)[0]], [])
        num = tf.shape(source_ids)[0]
        return SearchResult(
            ids=source_ids[:, None, :1],
            scores=tf.cast(source_ids[:, :1], tf.float32),
            lengths=tf.ones([num, 1], tf.int32),
            finished=tf.ones([num, 1], tf.bool),
        )

    monkeypatch.setattr(signatures, "MOST_TOGETHER", 12)
    found = signatures.search_by_length(search, ids, 1, 2)
    assert sizes == [3, 3, 3, 2] and found.finished.numpy().all()


def test_warm_up_requests_of_every_signature_are_in_the_export(exported, exported_translator):
    path = exported / "assets.extra" / "tf_serving_warmup_requests"
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    names = [log.predict_log.request.model_spec.signature_name for log in logs]
    assert set(names) == set(exported_translator.signatures) and len(logs) < 1000
    for log, name in zip(logs, names, strict=True):
        inputs = {key: tf.make_ndarray(p) for key, p in log.predict_log.request.inputs.items()}
        outputs = exported_translator.signatures[name](
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
        rows = {len(value) for value in [*inputs.values(), *outputs.values()]}
        assert len(rows) == 1
