"""Which devices train a model together, and what they tell each other: `tf.distribute`."""

import contextlib
import functools
import json
import os
import pickle
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import STRATEGIES
from keras_transformer.models import Transformer
from keras_transformer.training.divided_step import DividedTransformer

# what TensorFlow says on this worker when another one is gone
LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)


class WorkerLost(RuntimeError):
    """Another worker has gone, or could not be reached."""


class Distribution:
    """The devices that train one model together, maybe those of several processes, the workers.

    Each replica holds a copy of the model and takes its share of every batch.

    Args:
        strategy: `tf.distribute.Strategy`, or None of one device.
    Attributes:
        num_replicas: copies of the model, those of all workers.
        num_workers: processes.
        is_chief: whether this one is the worker that reads and writes the run.
    """

    def __init__(self, strategy=None):
        self.strategy = strategy
        self.num_replicas = 1 if strategy is None else strategy.num_replicas_in_sync
        workers, self._worker = [None], 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = strategy.cluster_resolver
            workers = _workers(resolver.cluster_spec().as_dict())
            self._worker = workers.index((resolver.task_type, resolver.task_id))
        self.num_workers = len(workers)
        self.is_chief = self._worker == 0
        self._replicas_here = self.num_replicas // self.num_workers

    def __str__(self):
        replicas = f"{self.num_replicas} replicas" if self.num_replicas > 1 else "one device"
        return f"{replicas} on {self.num_workers} workers" if self.num_workers > 1 else replicas

    def scope(self):
        """Returns the context in which a model and its optimizer are to be made."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    def dataset(self, dataset, num_parts=1):
        """Returns the share of this worker's replicas in a `tf.data.Dataset` of whole batches.

        A replica gets every `num_replicas`-th row. Rows of zeros fill a batch up, so that all have
        as many rows, and these make `num_parts` equal parts.
        """
        multiple = self.num_replicas * num_parts
        if multiple == 1:
            return dataset
        first, last = (self._replicas_here * worker for worker in (self._worker, self._worker + 1))

        def shares(tensor):  # (B, T) -> (replicas here, B / replicas, T)
            missing = -tf.shape(tensor)[0] % multiple
            tensor = tf.pad(tensor, [[0, missing], [0, 0]])
            rows = tf.reshape(tensor, [-1, self.num_replicas, tf.shape(tensor)[1]])
            return tf.transpose(rows[:, first:last], [1, 0, 2])

        def deal(*batch):
            return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(shares, batch))

        dataset = dataset.flat_map(deal).prefetch(2 * self._replicas_here)
        if self.strategy is None:
            return dataset
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def check(self, training):
        """Raises `ValueError` where these devices cannot train as a `TrainingConfig` says."""
        if training.jit_compile and self.strategy is not None:
            raise ValueError(
                "Expected jit_compile=true on one device. Received: jit_compile=true, and "
                f"{self}. Leave it out, or choose the strategy one."
            )
        parts = training.gradient_accumulation_steps
        if parts > 1 and keras.backend.backend() != "tensorflow":
            raise ValueError(
                "Expected each step as a whole on other backends than TensorFlow. Received: "
                f"gradient_accumulation_steps={parts}, KERAS_BACKEND={keras.backend.backend()}. "
                "Lower batch_tokens."
            )
        if isinstance(self.strategy, tf.distribute.TPUStrategy) and not training.static_shapes:
            raise ValueError(
                "Expected batches of a few shapes on a TPU, which compiles each. Received: "
                "static_shapes=false. Set training.static_shapes=true."
            )

    def close(self):
        """Leaves no state behind in Keras."""

    def model_class(self, num_parts=1):
        """Returns what to make a `Transformer` with that is trained on these devices."""
        if self.strategy is None and num_parts == 1:
            return Transformer
        return functools.partial(DividedTransformer, num_parts=num_parts)

    # === Between workers, who all must call the same ===

    def total(self, value):
        """Returns the sum of an array over the workers."""
        value = np.asarray(value)
        if self.num_workers == 1:
            return value
        flat = tf.constant(value.reshape(-1))
        return self._sum_over_workers(flat).numpy().reshape(value.shape)

    @tf.function(reduce_retracing=True, autograph=False)
    def _sum_over_workers(self, values):
        def of_replica():
            context = tf.distribute.get_replica_context()
            is_first_here = context.replica_id_in_sync_group % self._replicas_here == 0
            return context.all_reduce("SUM", values * tf.cast(is_first_here, values.dtype))

        return self.strategy.experimental_local_results(self.strategy.run(of_replica))[0]

    def from_chief(self, make):
        """Returns what `make()` returns on the chief, which can be pickled.

        Raises:
            ValueError: `make` has raised one on the chief.
            WorkerLost: `make` has raised another exception there.
        """
        if self.num_workers == 1:
            return make()
        if not self.is_chief:
            length = int(self.total(np.zeros([], "int32")))
            content = self.total(np.zeros(length, "int32"))
            value, error = pickle.loads(content.astype("uint8").tobytes())
            if error is not None:
                is_value_error, message = error
                kind = ValueError if is_value_error else WorkerLost
                raise kind(f"The first worker has stopped: {message}")
            return value
        value, error = None, None
        try:
            value = make()
        except BaseException as raised:
            error = isinstance(raised, ValueError), str(raised) or type(raised).__name__
            raise
        finally:
            content = np.frombuffer(pickle.dumps((value, error)), "uint8").astype("int32")
            self.total(np.array(len(content), "int32"))
            self.total(content)
        return value

    def copy_from_chief(self, variables):
        """Gives the Keras variables of every worker the chief's values."""
        if self.num_workers > 1:
            for variable in variables:
                value = np.asarray(variable)
                variable.assign(self.total(value if self.is_chief else np.zeros_like(value)))


class JaxDistribution(Distribution):
    """The devices of JAX, of which each takes some rows (`keras.distribution.DataParallel`).

    A step is one computation of the whole batch, so it is exact as it is.
    """

    def __init__(self):
        super().__init__()
        parallel = keras.distribution.DataParallel()
        self._before = keras.distribution.distribution()
        keras.distribution.set_distribution(parallel)  # Keras reads it in `fit` too
        self.num_replicas = parallel.device_mesh.devices.size

    def dataset(self, dataset, num_parts=1):
        """Returns the batches, filled up with rows of zeros: each device gets as many."""
        return Distribution().dataset(dataset, num_parts=self.num_replicas)

    def close(self):
        keras.distribution.set_distribution(self._before)


@contextlib.contextmanager
def started(strategy="auto", write=print):
    """Yields what `start` returns.

    Raises:
        WorkerLost: in place of what TensorFlow raises when another worker has gone.
    """
    devices = start(strategy, write)
    try:
        yield devices
    except LOST as error:
        if devices.num_workers == 1:
            raise
        raise WorkerLost(
            "another worker has stopped or cannot be reached. Start all workers again with the "
            "same command: they go on from the last checkpoint"
        ) from error
    finally:
        devices.close()


def start(strategy="auto", write=print):
    """Returns the `Distribution` of a name; waits for the other workers, if there are any.

    Args:
        strategy: "one" device; "mirrored": all GPUs of this machine, else its logical CPU devices;
            "multi_worker": the machines that TF_CONFIG or SLURM describes; "tpu"; or "auto": the
            workers of TF_CONFIG, else several GPUs, else one device. With JAX all devices of the
            machine, but for "one".
        write: called with a line where there are others to wait for.
    Raises:
        ValueError: unknown name, no such devices, or a cluster that is not described well.
    """
    if strategy not in STRATEGIES:
        raise ValueError(
            f"Expected a strategy: {', '.join(STRATEGIES)}. Received: strategy={strategy!r}."
        )
    if keras.backend.backend() == "jax":
        return _of_jax(strategy)
    if keras.backend.backend() == "torch":
        return _of_torch(strategy)
    if strategy == "auto":
        if len(_workers(_tf_config().get("cluster", {}))) > 1:
            strategy = "multi_worker"
        else:
            strategy = "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "one"
    return {
        "one": lambda: Distribution(),
        "mirrored": lambda: Distribution(_mirrored()),
        "multi_worker": lambda: Distribution(_multi_worker(write)),
        "tpu": lambda: Distribution(_tpu()),
    }[strategy]()


def _of_jax(strategy):
    devices = keras.distribution.list_devices()
    if strategy == "multi_worker":
        raise ValueError(
            "Expected the devices of one machine with JAX. Received: strategy='multi_worker'. "
            "Use the TensorFlow backend for several machines."
        )
    if strategy == "tpu" and not devices[0].startswith("tpu"):
        raise ValueError(
            f"Expected a TPU. Received: strategy='tpu', and of JAX the devices {devices}. "
            "Install jax[tpu] on a TPU machine, or choose auto."
        )
    return Distribution() if strategy == "one" or len(devices) == 1 else JaxDistribution()


def _mirrored():
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _of_torch(strategy):
    if strategy not in ("auto", "one"):
        raise ValueError(
            "Expected one device, which is what training has with PyTorch. Received: "
            f"strategy={strategy!r}. Use the TensorFlow or the JAX backend."
        )
    return Distribution()


def _multi_worker(write):
    config = _tf_config() if "TF_CONFIG" in os.environ else _of_slurm()
    workers = _workers(config.get("cluster", {}))
    task = config.get("task", {})
    task = task.get("type"), int(task.get("index", -1))
    if task not in workers:
        raise ValueError(
            "Expected TF_CONFIG to name this process among the workers of its cluster. "
            f"Received: TF_CONFIG={json.dumps(config)}. Write it as "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.'
        )
    if len(workers) > 1:
        write(f"workers     waiting for all {len(workers)}")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(config["cluster"]),
        task_type=task[0],
        task_id=task[1],
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
        rpc_layer="grpc",
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except RuntimeError as error:
        raise ValueError(
            "Expected to connect the workers before TensorFlow has computed anything. Received: "
            f"a process that has ({error}). Call train() first."
        ) from error
    except tf.errors.OpError as error:
        raise WorkerLost(f"not all workers were reached ({error.message})") from error


def _of_slurm():
    """Returns what TF_CONFIG would say of the tasks of a SLURM step."""
    if "SLURM_STEP_NUM_TASKS" not in os.environ:
        raise ValueError(
            "Expected a description of the workers, in TF_CONFIG or by SLURM's srun. "
            "Received: strategy='multi_worker' and neither of them. Set TF_CONFIG on each machine, "
            "or choose mirrored for the devices of one."
        )
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=sys.maxsize,  # it names no host beyond that; SLURM has dealt them out already
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    cluster = resolver.cluster_spec().as_dict()
    return {"cluster": cluster, "task": {"type": resolver.task_type, "index": resolver.task_id}}


def _tf_config():
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        config = json.loads(text)
        _workers(config.get("cluster", {}))
        int(config.get("task", {}).get("index", 0))
        return config
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            "Expected TF_CONFIG to be a JSON object of a cluster, lists of hosts, and a task. "
            f"Received: TF_CONFIG={text}."
        ) from None


def _workers(cluster):
    """Returns the `(type, index)` of the workers, the chief first, in a dict of lists of hosts."""
    return [(kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))]


def _tpu():
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, tf.errors.OpError, RuntimeError, AttributeError) as error:
        raise ValueError(
            "Expected a TPU, and a TensorFlow that has its operations (`tensorflow-tpu`). "
            f"Received: strategy='tpu', of which TensorFlow says: {error}. "
            "On a TPU machine KERAS_BACKEND=jax is the road that is tested."
        ) from None
