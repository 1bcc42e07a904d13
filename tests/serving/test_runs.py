"""Runs of a graph: a time limit stops them, and each takes its own thread.

These tests hold TensorFlow to the options that `RunThreads` relies on.
"""

import concurrent.futures
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.backend.parallel_calls import NUM_CORES
from keras_transformer.serving.loaded_model import Signature
from keras_transformer.serving.run_threads import RunThreads


@pytest.fixture(scope="module")
def signature():
    """A loop that ends at once for a negative number, and never for another one."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    threads = RunThreads(config)
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None])
        (y,) = tf.while_loop(lambda v: tf.reduce_sum(v) >= 0.0, lambda v: [v + 0.0], [x])
        signature_def = tf.compat.v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        with tf.compat.v1.Session(config=config) as session:
            yield Signature("search", signature_def, session, threads)


def run(signature, number, timeout=None):
    return signature({"x": np.array([number], "float32")}, timeout)["y"]


def test_a_search_that_does_not_end_is_stopped(signature):
    start = time.monotonic()
    with pytest.raises(tf.errors.DeadlineExceededError):
        run(signature, 1.0, 0.2)
    assert time.monotonic() - start < 10
    assert run(signature, -1.0) == [-1.0]  # its thread is free again


@pytest.mark.skipif(NUM_CORES < 2, reason="needs two cores")
def test_a_run_does_not_wait_for_another(signature):
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        long_run = other.submit(run, signature, 1.0, 3.0)
        time.sleep(0.2)
        for _ in range(5):
            assert run(signature, -1.0, 2.0) == [-1.0]
        assert not long_run.done()
        assert isinstance(long_run.exception(), tf.errors.DeadlineExceededError)
