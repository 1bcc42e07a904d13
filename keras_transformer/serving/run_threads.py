"""The threads in which TensorFlow runs graphs, each of which takes whole runs.

To hand the small operations of a search from thread to thread takes longer than they do. And a run
in the thread that asks for it has no time limit: TensorFlow watches the clock of other threads.
"""

import contextlib
import threading

from keras_transformer.serving.settings import NUM_CORES


class RunThreads:
    """Pools of one thread each, as many as there are cores.

    Args:
        config: `tf.compat.v1.ConfigProto` of the session that is to have them.
    """

    def __init__(self, config):
        for _ in range(NUM_CORES):
            config.session_inter_op_thread_pool.add(num_threads=1)
        self._num_runs = [0] * NUM_CORES
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one(self):
        """Gives the number of a pool that has the fewest runs."""
        with self._lock:
            number = self._num_runs.index(min(self._num_runs))
            self._num_runs[number] += 1
        try:
            yield number
        finally:
            with self._lock:
                self._num_runs[number] -= 1
