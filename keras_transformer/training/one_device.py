"""Training on one device, and the interface of several devices."""

import contextlib
import pickle
import time

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.training.micro_batches import with_micro_batches

WIDTH = 512  # of the square matrices whose products are timed
BYTES_AT_ONCE = 2**18  # of what a chief sends: as integers, they take four times as many
LEAST_REPEATS, LEAST_SECONDS = 3, 0.4  # of the measurement
NO_MEMORY = "ResourceExhaustedError", "OutOfMemoryError", "MemoryError"
"""Names of the errors of TensorFlow, PyTorch and Python for memory that is full."""


class WorkerLost(RuntimeError):
    """Another worker has stopped, or could not be reached."""

    def __init__(
        self,
        message="another worker has stopped or cannot be reached. Start all workers again with the "
        "same command: they go on from the last checkpoint",
    ):
        super().__init__(message)


class Distribution:
    """The devices that train one model together. This class is one device; others extend it.

    Attributes:
        num_replicas: number of copies of the model, over all workers. Every batch must have a
            multiple of this number of rows.
        num_workers: number of processes.
        is_chief: whether this process is the worker that reads and writes the run.
        strategy: `tf.distribute.Strategy`, or None without one.
    """

    num_replicas = 1
    num_workers = 1
    is_chief = True
    strategy = None

    def __str__(self):
        replicas = f"{self.num_replicas} replicas" if self.num_replicas > 1 else "one device"
        return f"{replicas} on {self.num_workers} workers" if self.num_workers > 1 else replicas

    def scope(self):
        """Returns the context in which the model and its optimizer must be created."""
        return contextlib.nullcontext()

    def dataset(self, dataset):
        """Returns the part of a dataset of whole batches that this worker trains on."""
        return dataset

    def check(self, training):
        """Raises `InputError` if these devices cannot train as a `TrainingConfig` says."""

    def model_class(self, model_class, num_parts=1):
        """Returns the class of which a model must be created to be trained on these devices.

        Args:
            model_class: a `TokenModel`.
            num_parts: number of micro-batches per step on each device.
        """
        if num_parts == 1:
            return model_class
        return with_micro_batches(model_class, num_parts)

    def peak_bytes(self):
        """Returns the most memory that was used on a GPU of this process; 0: none, or unknown."""
        return 0

    def failure_of(self, error):
        """Returns an error of this worker, or `WorkerLost` if it says that another has stopped."""
        return error

    def close(self):
        """Undoes what `start` has changed in Keras."""

    # === Communication between workers: all of them must make the same calls ===

    def total(self, value):
        """Returns the sum of an array over the workers."""
        return np.asarray(value)

    def from_chief(self, make):
        """Returns what `make()` returns on the chief; it must be possible to pickle it.

        Raises:
            InputError: `make` has raised one on the chief.
            WorkerLost: `make` has raised another exception there.
        """
        if self.num_workers == 1:
            return make()
        if not self.is_chief:
            length = int(self.total(np.zeros([], "int64")))
            parts = (self.total(np.zeros(size, "int32")) for _, size in _parts(length))
            content = b"".join(part.astype("uint8").tobytes() for part in parts)
            value, error = pickle.loads(content)
            if error is not None:
                is_input_error, message = error
                kind = InputError if is_input_error else WorkerLost
                raise kind(f"The first worker has stopped: {message}")
            return value
        value, error = None, None
        try:
            value = make()
        except BaseException as raised:
            error = isinstance(raised, InputError), str(raised) or type(raised).__name__
            raise
        finally:
            content = np.frombuffer(pickle.dumps((value, error)), "uint8")
            self.total(np.array(len(content), "int64"))
            for start, size in _parts(len(content)):
                self.total(content[start : start + size].astype("int32"))
        return value

    def copy_from_chief(self, variables):
        """Gives the Keras variables of every worker the values that the chief has."""
        if self.num_workers > 1:
            for variable in variables:
                value = np.asarray(variable)
                variable.assign(self.total(value if self.is_chief else np.zeros_like(value)))


def _parts(length):
    """Yields `(start, size)` of the parts in which a chief sends its bytes."""
    for start in range(0, length, BYTES_AT_ONCE):
        yield start, min(BYTES_AT_ONCE, length - start)


@contextlib.contextmanager
def explaining_full_memory(training):
    """Says of an error for lack of memory which setting helps; other errors pass.

    Args:
        training: `TrainingConfig`.
    Raises:
        InputError: the memory is too small for a step.
    """
    try:
        yield
    except Exception as error:
        name, first_line = type(error).__name__, str(error).partition("\n")[0]
        if name not in NO_MEMORY and not first_line.startswith("RESOURCE_EXHAUSTED"):  # of JAX
            raise
        parts = training.gradient_accumulation_steps
        raise InputError(
            f"Expected memory for a step. Received: training.batch_tokens={training.batch_tokens}, "
            f"training.gradient_accumulation_steps={parts}: {name}: {first_line:.200} The "
            "checkpoints are kept, and the same command goes on from the last. Set "
            f"training.gradient_accumulation_steps={2 * parts}, which halves the part of a batch "
            "that is computed at once."
        ) from error


def times_float32(policy: str) -> float:
    """Returns the time of a product in the compute dtype of a policy, divided by that in float32.

    A processor may have no unit for a lower precision, or a slow one: some virtual machines hide
    the unit for bfloat16 (AMX), and products then take twice the time of float32.

    Args:
        policy: name of a Keras dtype policy, such as "mixed_bfloat16".
    """
    dtypes = (keras.DTypePolicy(policy).compute_dtype, "float32")
    rows = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype("float32")
    matrices = [ops.cast(ops.convert_to_tensor(rows), dtype) for dtype in dtypes]
    times: list[list[float]] = []
    # in turn, so that another program on the same device slows both
    while len(times) <= LEAST_REPEATS or np.sum(times) < LEAST_SECONDS:
        times.append([_seconds(matrix) for matrix in matrices])
    shortest, of_float32 = np.min(times[1:], axis=0)  # the first products prepare the device
    return shortest / of_float32


def _seconds(matrix):
    """Returns the time of the product of a matrix with itself."""
    start = time.perf_counter()
    float(ops.cast(ops.matmul(matrix, matrix)[0, 0], "float32"))  # waits for the device
    return time.perf_counter() - start
