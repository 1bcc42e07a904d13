"""Training on one device, and the interface of several devices.

On JAX and PyTorch, micro-batches are a step in parts that need the memory of one, with its
gradient; `gradient_accumulation.py` is for TensorFlow. The weights in the data hold the division by
the tokens of the whole step, so the gradients of the parts are summed, and so are their losses, of
which Keras's metrics take the mean over the rows.

What this file relies on in Keras 3.15 that is not part of its public interface; the tests in
`test_micro_batches.py` fail if Keras changes one of these:

- on JAX, `model.compute_loss_and_updates` and `model._update_metrics_variables`;
- on PyTorch, `model._compute_loss` and `model._loss_tracker`.
"""

import contextlib
import pickle
import time

import keras
import numpy as np
from keras import ops, tree

from keras_transformer.errors import InputError

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


def with_micro_batches(model_class, num_parts):
    """Returns a subclass of a `TokenModel` whose training steps have `num_parts` micro-batches.

    The rows of each batch must be a multiple of `num_parts`.
    """
    steps = {"jax": StepOnJax, "torch": StepOnPyTorch}[keras.backend.backend()]
    return type("DividedModel", (steps, model_class), {"num_parts": num_parts})


def parts_of(data, num_parts):
    """Returns arrays with a new first axis of P parts, of which part 0 has the rows 0, P, 2 P ...

    If devices hold a block of the rows each, each of them has an equal share of every part.
    """

    def divide(x):
        return ops.swapaxes(ops.reshape(x, (-1, num_parts, *x.shape[1:])), 0, 1)

    return tree.map_structure(divide, data)


class StepOnJax:
    """A mix-in that stands before the model's class."""

    def train_step(self, state, data):
        import jax

        weights, others, of_optimizer, of_metrics = state
        gradients_of = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)

        def add_part(sums, part):
            gradients, others, of_metrics = sums
            part = self.repeated(part)
            x, labels, token_weights = keras.utils.unpack_x_y_sample_weight(part)
            with self._step_on(part, training=True):
                arguments = weights, others, of_metrics, x, labels, token_weights, True
                (_, found), more = gradients_of(*arguments, optimizer_variables=of_optimizer)
                loss, predictions, others, of_metrics = found
                found = loss * self.num_parts, x, labels, predictions, token_weights
                logs, of_metrics = self._update_metrics_variables(of_metrics, *found)
            return (jax.tree.map(jax.numpy.add, gradients, more), others, of_metrics), logs

        zeros = jax.tree.map(jax.numpy.zeros_like, weights)
        sums = zeros, others, of_metrics
        sums, logs = jax.lax.scan(add_part, sums, parts_of(data, self.num_parts))
        gradients, others, of_metrics = sums
        weights, of_optimizer = self.optimizer.stateless_apply(of_optimizer, gradients, weights)
        logs = jax.tree.map(lambda values: values[-1], logs)  # metrics after the last part
        return logs, (weights, others, of_optimizer, of_metrics)


class StepOnPyTorch:
    """As `StepOnJax`."""

    def train_step(self, data):
        import torch

        self.zero_grad()
        parts = parts_of(data, self.num_parts)
        for index in range(self.num_parts):
            logs = self._add_gradients(tree.map_structure(lambda x, i=index: x[i], parts))
        weights = self.trainable_weights[:]
        with torch.no_grad():
            self.optimizer.apply([weight.value.grad for weight in weights], weights)
        return logs

    def _add_gradients(self, data):
        """Adds the gradients of some rows to those of the weights; returns the metrics so far."""
        data = self.repeated(data)
        x, labels, token_weights = keras.utils.unpack_x_y_sample_weight(data)
        with self._step_on(data, training=True):
            predictions = self(x, training=True)
            loss = self._compute_loss(x, labels, predictions, token_weights, training=True)
            self._loss_tracker.update_state(loss * self.num_parts, sample_weight=len(labels))
            self.optimizer.scale_loss(loss).backward()
            return self.compute_metrics(x, labels, predictions, token_weights)
