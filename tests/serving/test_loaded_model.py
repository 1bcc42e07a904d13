"""A loaded SavedModel: what is warmed up when, and what closing waits for."""

import shutil
import threading

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformer.export.saved_model import WARMUP_REQUESTS
from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.loaded_model import DEFAULT_SIGNATURE, LoadedModel, Signature


@pytest.fixture
def calls(monkeypatch):
    """The names of the signatures in the order in which they are called."""
    calls, call = [], Signature.__call__

    def recorded(self, inputs, timeout=None):
        calls.append(self.name)
        return call(self, inputs, timeout)

    monkeypatch.setattr(Signature, "__call__", recorded)
    return calls


def test_the_other_signatures_are_warmed_up_afterwards(exported, calls):
    model = LoadedModel(exported)
    assert set(calls) == {DEFAULT_SIGNATURE}
    model.warm_up_others()
    assert set(calls) == set(model.signatures)
    assert calls.count(DEFAULT_SIGNATURE) == calls.index("n_best")  # none a second time
    model.close()


def test_closing_waits_for_one_request_and_ends_the_warm_up(exported, monkeypatch):
    model, begun, may_end, called = LoadedModel(exported), threading.Event(), threading.Event(), []
    call = Signature.__call__

    def slow(self, inputs, timeout=None):
        called.append(self.name)
        begun.set()
        assert may_end.wait(30)
        return call(self, inputs, timeout)

    monkeypatch.setattr(Signature, "__call__", slow)
    threads = [threading.Thread(target=f) for f in (model.warm_up_others, model.close)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()  # a session that is closed in a run would break it
    may_end.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(called) == 1


def request_of(signature, *names):
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for name in names:
        request.inputs[name].CopyFrom(tf.make_tensor_proto([b"A dog."]))
    return log.SerializeToString()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no records, but text", "cannot be read"),
        ([b"\xff\xff"], "cannot be read"),
        ([request_of("greedy", "text")], "calls greedy with text"),
        ([request_of("", "sentence")], "calls serving_default with sentence"),
    ],
)
def test_damaged_requests_are_named(exported, tmp_path, content, reason):
    version = shutil.copytree(exported, tmp_path / "1")
    path = version / WARMUP_REQUESTS
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with tf.io.TFRecordWriter(str(path)) as records:
            for record in content:
                records.write(record)
    with pytest.raises(ServingError, match=f"damaged files .tf_serving_warmup_requests {reason}"):
        LoadedModel(version)
