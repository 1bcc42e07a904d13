"""A SavedModel loaded as TensorFlow Serving loads it: in a session, without XLA."""

import contextlib
import functools
import pathlib
import threading

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizers' operations
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformer.config.settings import NUM_CORES
from keras_transformer.export.saved_model import WARMUP_REQUESTS
from keras_transformer.export.serving_session import disable_xla
from keras_transformer.serving.errors import damaged

DEFAULT_SIGNATURE = "serving_default"
PREDICT = "tensorflow/serving/predict"  # the method of signatures that can be called


class Tensor:
    """An input or output of a signature.

    Attributes:
        tensor: str, the name of the tensor in the graph.
        dtype: `tf.DType`.
        shape: tuple of int or None; None if the rank is unknown.
    """

    def __init__(self, info):
        self.tensor = info.name
        self.dtype = tf.as_dtype(info.dtype)
        shape = tf.TensorShape(info.tensor_shape)
        self.shape = None if shape.rank is None else tuple(shape)


class SessionThreads:
    """The threads in which a session runs graphs: one pool of one thread for each core.

    Each run has one thread for itself: handing the small operations of a search from thread to
    thread would take longer than the operations themselves. A run in the calling thread is no
    alternative: TensorFlow does not apply the time limit of a run there.

    This relies on `session_inter_op_thread_pool` of `ConfigProto`, which TensorFlow calls
    experimental, and on `inter_op_thread_pool` of `RunOptions`, the number of the pool that takes a
    run. tests/serving/test_loaded_model.py fails if a run no longer stops in time or waits for
    another.

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


class Signature:
    """A callable signature of a model; `inputs` and `outputs` are dicts from name to `Tensor`."""

    def __init__(self, name, signature_def, session, threads):
        self.name = name
        self.inputs = {key: Tensor(info) for key, info in sorted(signature_def.inputs.items())}
        self.outputs = {key: Tensor(info) for key, info in sorted(signature_def.outputs.items())}
        self._session = session
        self._threads = threads

    @property
    def is_batchable(self):
        """Whether rows of several requests may be batched.

        All dimensions but the first must be fixed. Otherwise padding would make an answer depend
        on the other rows of its batch.
        """
        tensors = [*self.inputs.values(), *self.outputs.values()]
        return all(t.shape and t.shape[0] is None and None not in t.shape[1:] for t in tensors)

    def __call__(self, inputs, timeout=None):
        """Returns the outputs: dict from name to NumPy array.

        Args:
            inputs: dict from input name to NumPy array.
            timeout: seconds after which the run is stopped; a search stops at its next step.
        Raises:
            tf.errors.OpError: an operation of the graph failed; `DeadlineExceededError` after the
                timeout.
        """
        with self._threads.one() as number:
            options = tf.compat.v1.RunOptions(inter_op_thread_pool=number)
            if timeout is not None:
                options.timeout_in_ms = max(1, round(1000 * timeout))
            found = self._function(*(inputs[name] for name in self.inputs), options=options)
        return dict(zip(self.outputs, found, strict=True))

    @functools.cached_property
    def _function(self):
        return self._session.make_callable(
            [output.tensor for output in self.outputs.values()],
            [self._session.graph.get_tensor_by_name(i.tensor) for i in self.inputs.values()],
            accept_options=True,
        )


class LoadedModel:
    """A version of a model, ready to answer.

    TensorFlow optimizes the graph of a signature in its first call, which takes seconds. The
    warm-up requests of `DEFAULT_SIGNATURE` are answered here, so that its first client does not
    wait. Those of the others, which few clients call, are left to `warm_up_others`.

    Args:
        path: directory of the SavedModel.
    Attributes:
        signature_defs: dict from name to `SignatureDef`, with all signatures.
        signatures: dict from name to `Signature`, with the signatures that can be called.
        card: dict, the model card of the export.
    Raises:
        ServingError: the warm-up requests cannot be read, or do not fit the signatures.
        tf.errors.OpError, OSError: the SavedModel is missing or incomplete, or the warm-up of
            `DEFAULT_SIGNATURE` fails.
    """

    card: dict = {}

    def __init__(self, path):
        disable_xla()
        # each batch runs on one core, and several batches run at the same time
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
        # loading and the first call of a signature look at the nodes that they need alone: without
        # it, at those of all signatures, which takes half a second each time
        config.graph_options.place_pruned_graph = True
        threads = SessionThreads(config)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        self._open = threading.Lock()  # held while the session must not be closed
        self._is_closed = False
        try:
            with self._session.graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
            self.signature_defs = dict(meta_graph.signature_def)
            self.signatures = {
                name: Signature(name, signature_def, self._session, threads)
                for name, signature_def in self.signature_defs.items()
                if signature_def.method_name == PREDICT
            }
            requests = list(self._warm_up_requests(pathlib.Path(path, WARMUP_REQUESTS)))
            for signature, inputs in requests:
                if signature.name == DEFAULT_SIGNATURE:
                    signature(inputs)
        except BaseException:
            self.close()
            raise
        self._other_requests = [r for r in requests if r[0].name != DEFAULT_SIGNATURE]

    def _warm_up_requests(self, records):
        """Yields the signature and the inputs of each of the SavedModel's warm-up requests."""
        if not records.exists():
            return
        # tf.data would start threads, which once hung here
        try:
            for record in tf.compat.v1.io.tf_record_iterator(str(records)):
                request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
                inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
                name = request.model_spec.signature_name or DEFAULT_SIGNATURE
                signature = self.signatures.get(name)
                if signature is None or signature.inputs.keys() != inputs.keys():
                    raise damaged(f"{records.name} calls {name} with {', '.join(inputs) or None}")
                yield signature, inputs
        except (tf.errors.DataLossError, DecodeError, TypeError, ValueError):
            raise damaged(f"{records.name} cannot be read") from None

    def warm_up_others(self):
        """Answers the remaining warm-up requests; ends early if the model is closed meanwhile.

        Raises:
            tf.errors.OpError: a request fails.
        """
        for signature, inputs in self._other_requests:
            with self._open:
                if self._is_closed:
                    return
                signature(inputs)

    def close(self):
        """Frees the memory of the model, after the warm-up request that is being answered."""
        self._is_closed = True
        with self._open:
            self._session.close()
