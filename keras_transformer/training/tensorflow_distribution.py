"""Training with TensorFlow on one device or several, on one machine or several."""

import contextlib
import json
import os
import sys

import numpy as np
import tensorflow as tf

from keras_transformer.errors import InputError
from keras_transformer.training.gradient_accumulation import with_divided_step
from keras_transformer.training.one_device import Distribution, WorkerLost

LOST_WORKER_ERRORS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)


class TensorFlowDistribution(Distribution):
    """The devices of a `tf.distribute.Strategy`, of one process or of several workers.

    Each replica holds a copy of the model and takes its share of the rows of every batch.

    Args:
        strategy: `tf.distribute.Strategy`, or None for one device.
    """

    def __init__(self, strategy=None):
        self.strategy = strategy
        self.num_replicas = 1 if strategy is None else strategy.num_replicas_in_sync
        self._worker = 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = strategy.cluster_resolver
            workers = workers_of({"cluster": resolver.cluster_spec().as_dict()})
            self._worker = workers.index((resolver.task_type, resolver.task_id))
            self.num_workers = len(workers)
        self.is_chief = self._worker == 0
        self._replicas_here = self.num_replicas // self.num_workers

    def scope(self):
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    def dataset(self, dataset):
        """Returns the share of this worker's replicas in a `tf.data.Dataset` of whole batches.

        Replica r gets the rows r, r + num_replicas, r + 2 * num_replicas and so on.
        """
        if self.strategy is None:
            return dataset
        first, last = (self._replicas_here * worker for worker in (self._worker, self._worker + 1))

        def shares(tensor):  # (B, ...) -> (replicas here, B / replicas, ...)
            sizes = tf.concat([[-1, self.num_replicas], tf.shape(tensor)[1:]], axis=0)
            rows = tf.reshape(tensor, sizes)[:, first:last]
            return tf.transpose(rows, [1, 0, *range(2, tensor.shape.rank + 1)])

        def deal(*batch):
            return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(shares, batch))

        dataset = dataset.flat_map(deal).prefetch(2 * self._replicas_here)
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def check(self, training):
        if training.jit_compile and self.strategy is not None:
            raise InputError(
                "Expected jit_compile=true on one device only. Received: jit_compile=true and "
                f"{self}. Leave it out, or choose the strategy one."
            )
        if isinstance(self.strategy, tf.distribute.TPUStrategy) and not training.static_shapes:
            raise InputError(
                "Expected batches of a few shapes on a TPU, which compiles each shape. Received: "
                f"training.static_shapes={training.static_shapes}. Set training.static_shapes=5."
            )

    def model_class(self, model_class, num_parts=1):
        if self.strategy is None and num_parts == 1:
            return model_class
        return with_divided_step(model_class, num_parts)

    def peak_bytes(self):
        names = [device.name for device in tf.config.list_logical_devices("GPU")]
        return max(
            (tf.config.experimental.get_memory_info(name)["peak"] for name in names), default=0
        )

    def failure_of(self, error):
        is_lost = self.num_workers > 1 and isinstance(error, LOST_WORKER_ERRORS)
        return WorkerLost() if is_lost else error

    def total(self, value):
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


def start(strategy, write):
    """Returns the `Distribution` of a strategy, see `distribution.start`."""
    if strategy == "auto":
        if len(workers_of(read_tf_config())) > 1:
            strategy = "multi_worker"
        else:
            strategy = "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "one"
    if strategy == "one":
        return TensorFlowDistribution()
    if strategy == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        names = [device.name for device in devices]
        return TensorFlowDistribution(tf.distribute.MirroredStrategy(names))
    return TensorFlowDistribution(_tpu() if strategy == "tpu" else _multi_worker(write))


def _multi_worker(write):
    config = read_tf_config() if "TF_CONFIG" in os.environ else config_from_slurm()
    task_type, task_index = own_task(config)
    num_workers = len(workers_of(config))
    if num_workers > 1:
        write(f"workers     waiting for all {num_workers}")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(config["cluster"]),
        task_type=task_type,
        task_id=task_index,
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
        rpc_layer="grpc",
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except RuntimeError as error:
        raise InputError(
            "Expected to connect the workers before TensorFlow has computed anything. Received: "
            f"a process in which it has ({error}). Call train() first."
        ) from error
    except tf.errors.OpError as error:
        raise WorkerLost(f"not all workers were reached ({error.message})") from error


def _tpu():
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, tf.errors.OpError, RuntimeError, AttributeError) as error:
        raise InputError(
            "Expected a TPU, and a TensorFlow with TPU support (`tensorflow-tpu`). "
            f"Received: strategy='tpu'; TensorFlow says: {error}. "
            "On a TPU machine, use KERAS_BACKEND=jax, which is tested."
        ) from None


# === The workers of several machines ===


def read_tf_config():
    """Returns the content of TF_CONFIG, a dict that is empty if the variable is not set.

    Raises:
        InputError: it is not a JSON object with the right types.
    """
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        config = json.loads(text)
        workers_of(config)
        int(config.get("task", {}).get("index", 0))
        return config
    except (ValueError, TypeError, AttributeError):
        raise InputError(
            "Expected TF_CONFIG to be a JSON object with a cluster (lists of hosts) and a task. "
            f"Received: TF_CONFIG={text}."
        ) from None


def workers_of(config):
    """Returns the `(type, index)` of each worker in a TF_CONFIG, the chief first."""
    cluster = config.get("cluster", {})
    return [(kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))]


def own_task(config):
    """Returns the `(type, index)` of this process.

    Raises:
        InputError: this process is not one of the workers.
    """
    task = config.get("task", {})
    task = task.get("type"), int(task.get("index", -1))
    if task not in workers_of(config):
        raise InputError(
            "Expected TF_CONFIG to name this process among the workers of its cluster. "
            f"Received: TF_CONFIG={json.dumps(config)}. Write it as "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.'
        )
    return task


def config_from_slurm():
    """Returns what TF_CONFIG would say about the tasks of this SLURM step."""
    if "SLURM_STEP_NUM_TASKS" not in os.environ:
        raise InputError(
            "Expected a description of the workers, in TF_CONFIG or from SLURM's srun. "
            "Received: strategy='multi_worker' and neither of them. Set TF_CONFIG on each machine, "
            "or choose mirrored for the devices of one machine."
        )
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=sys.maxsize,  # lets it name any number of tasks per node
        gpus_per_task=1,
        auto_set_gpu=False,  # SLURM has assigned the GPUs already
    )
    cluster = resolver.cluster_spec().as_dict()
    return {"cluster": cluster, "task": {"type": resolver.task_type, "index": resolver.task_id}}
