"""A loaded SavedModel: its warm-up and end, and the threads and time limits of its runs."""

import concurrent.futures
import contextlib
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformer.config.settings import NUM_CORES
from keras_transformer.export.saved_model import WARMUP_REQUESTS
from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.loaded_model import (
    DEFAULT_SIGNATURE,
    LoadedModel,
    SessionThreads,
    Signature,
)


def request_of(signature, *names):
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for name in names:
        request.inputs[name].CopyFrom(tf.make_tensor_proto([b"A dog."]))
    return log.SerializeToString()


def write_warm_up(path, requests):
    with tf.io.TFRecordWriter(str(path / WARMUP_REQUESTS)) as records:
        for request in requests:
            records.write(request)


@pytest.fixture
def saved_model(tmp_path):
    """A SavedModel of three signatures, with warm-up requests for all of them."""
    model = tf.Module()
    model.same = tf.function(
        lambda text: {"text": tf.identity(text)},
        input_signature=[tf.TensorSpec([None], tf.string, "text")],
    )
    names = [DEFAULT_SIGNATURE, "n_best", "score"]
    tf.saved_model.save(model, tmp_path, signatures={name: model.same for name in names})
    (tmp_path / WARMUP_REQUESTS).parent.mkdir()
    # the default signature is called first, also if its requests are not the first
    write_warm_up(tmp_path, [request_of(n, "text") for n in ("n_best", "", "score", "")])
    return tmp_path


@pytest.fixture
def calls(monkeypatch):
    """The names of the signatures in the order in which they are called."""
    calls, call = [], Signature.__call__

    def recorded(self, inputs, timeout=None):
        calls.append(self.name)
        return call(self, inputs, timeout)

    monkeypatch.setattr(Signature, "__call__", recorded)
    return calls


def test_the_other_signatures_are_warmed_up_afterwards(saved_model, calls):
    model = LoadedModel(saved_model)
    assert calls == [DEFAULT_SIGNATURE] * 2
    model.warm_up_others()
    assert calls == [DEFAULT_SIGNATURE] * 2 + ["n_best", "score"]
    found = model.signatures["score"]({"text": np.array([b"a", b"b"], object)})
    assert found["text"].tolist() == [b"a", b"b"]
    model.close()


def test_closing_waits_for_one_request_and_ends_the_warm_up(saved_model, monkeypatch):
    model, begun, may_end, called = (
        LoadedModel(saved_model),
        threading.Event(),
        threading.Event(),
        [],
    )
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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no records, but text", "cannot be read"),
        ([b"\xff\xff"], "cannot be read"),
        ([request_of("greedy", "text")], "calls greedy with text"),
        ([request_of("", "sentence")], "calls serving_default with sentence"),
    ],
)
def test_damaged_requests_are_named(saved_model, content, reason):
    if isinstance(content, bytes):
        (saved_model / WARMUP_REQUESTS).write_bytes(content)
    else:
        write_warm_up(saved_model, content)
    with pytest.raises(ServingError, match=f"damaged files .tf_serving_warmup_requests {reason}"):
        LoadedModel(saved_model)


# === runs: these tests hold TensorFlow to the options that `SessionThreads` relies on ===


@contextlib.contextmanager
def signature_of(function):
    """Yields the `Signature` of a function from a vector x to a vector y."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    threads = SessionThreads(config)
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None])
        outputs = {"y": function(x)}
        signature_def = tf.compat.v1.saved_model.predict_signature_def({"x": x}, outputs)
        with tf.compat.v1.Session(config=config) as session:
            yield Signature("search", signature_def, session, threads)


def run(signature, number, timeout=None):
    return signature({"x": np.array([number], "float32")}, timeout)["y"]


def test_a_search_that_does_not_end_is_stopped():
    def search(x):
        """Ends at once for a negative number, and never for another one."""
        return tf.while_loop(lambda v: tf.reduce_sum(v) >= 0.0, lambda v: [v + 0.0], [x])[0]

    with signature_of(search) as signature:
        start = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            run(signature, 1.0, 0.2)
        assert time.monotonic() - start < 10
        assert run(signature, -1.0) == [-1.0]  # its thread is free again


@pytest.mark.skipif(NUM_CORES < 2, reason="needs two cores")
def test_a_run_does_not_wait_for_another():
    begun, may_end = threading.Event(), threading.Event()

    def wait(x):
        if x[0] > 0:
            begun.set()
            assert may_end.wait(30)
        return x

    with (
        signature_of(lambda x: tf.numpy_function(wait, [x], tf.float32)) as signature,
        concurrent.futures.ThreadPoolExecutor(1) as other,
    ):
        long_run = other.submit(run, signature, 1.0)
        assert begun.wait(30)
        for _ in range(5):
            assert run(signature, -1.0, 20.0) == [-1.0]
        assert not long_run.done()
        may_end.set()
        assert long_run.result() == [1.0]
