"""The threads in which TensorFlow runs graphs: each run has one thread for itself.

Handing the small operations of a search from thread to thread would take longer than the operations
themselves. A run in the calling thread is no alternative: TensorFlow does not apply the time limit
of a run there.

This relies on `session_inter_op_thread_pool` of `ConfigProto`, which TensorFlow calls experimental,
and on `inter_op_thread_pool` of `RunOptions`, the number of the pool that takes a run.
tests/serving/test_runs.py fails if a run no longer stops in time or waits for another.
"""

import contextlib
import threading

from keras_transformer.config.settings import NUM_CORES


class RunThreads:
    """Adds one pool with one thread for each core to a session.

    Args:
        config: `tf.compat.v1.ConfigProto` of the session; the pools are added to it.
    """

    def __init__(self, config):
        for _ in range(NUM_CORES):
            config.session_inter_op_thread_pool.add(num_threads=1)
        self._num_runs = [0] * NUM_CORES
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one(self):
        """Yields the number of the pool that has the fewest runs."""
        with self._lock:
            number = self._num_runs.index(min(self._num_runs))
            self._num_runs[number] += 1
        try:
            yield number
        finally:
            with self._lock:
                self._num_runs[number] -= 1
