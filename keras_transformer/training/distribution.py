"""The devices that train one model together: one, the replicas of TensorFlow, or those of JAX."""

import contextlib

import keras

from keras_transformer.config import STRATEGIES
from keras_transformer.errors import InputError
from keras_transformer.training.one_device import Distribution, WorkerLost


@contextlib.contextmanager
def started(strategy="auto", write=print):
    """Yields what `start` returns, and closes it at the end.

    Raises:
        WorkerLost: another worker has stopped.
    """
    devices = start(strategy, write)
    try:
        yield devices
    except devices.lost_worker_errors as error:
        raise WorkerLost(
            "another worker has stopped or cannot be reached. Start all workers again with the "
            "same command: they go on from the last checkpoint"
        ) from error
    finally:
        devices.close()


def start(strategy="auto", write=print):
    """Returns the `Distribution` of a strategy; waits for the other workers, if there are any.

    Args:
        strategy: "one" device; "mirrored": all GPUs of this machine, or its logical CPU devices if
            it has no GPU; "multi_worker": the machines that TF_CONFIG or SLURM describes; "tpu";
            or "auto": the workers of TF_CONFIG, otherwise several GPUs, otherwise one device. With
            JAX, every strategy except "one" uses all devices of the machine.
        write: called with a line of text when there are other workers to wait for.
    Raises:
        InputError: unknown name, no such devices, or an invalid description of the cluster.
    """
    if strategy not in STRATEGIES:
        raise InputError(
            f"Expected a strategy: {', '.join(STRATEGIES)}. Received: strategy={strategy!r}."
        )
    if keras.backend.backend() == "tensorflow":
        from keras_transformer.training import tensorflow_distribution

        return tensorflow_distribution.start(strategy, write)
    if keras.backend.backend() == "jax":
        return _jax_distribution(strategy)
    if strategy not in ("auto", "one"):
        raise InputError(
            "Expected one device: PyTorch trains on one. Received: "
            f"strategy={strategy!r}. Use the TensorFlow or the JAX backend."
        )
    return Distribution()


class JaxDistribution(Distribution):
    """All JAX devices of this machine; each takes an equal number of rows of every batch.

    JAX computes a step as one operation on the whole batch, so the step is that of one device.
    """

    def __init__(self):
        parallel = keras.distribution.DataParallel()
        self._before = keras.distribution.distribution()
        keras.distribution.set_distribution(parallel)  # `fit` reads it too
        self.num_replicas = parallel.device_mesh.devices.size

    def close(self):
        keras.distribution.set_distribution(self._before)


def _jax_distribution(strategy):
    """Returns what `start` returns with JAX."""
    if strategy == "multi_worker":
        raise InputError(
            "Expected the devices of one machine with JAX. Received: strategy='multi_worker'. "
            "Use the TensorFlow backend for several machines."
        )
    devices = keras.distribution.list_devices()
    if strategy == "tpu" and not devices[0].startswith("tpu"):
        raise InputError(
            f"Expected a TPU. Received: strategy='tpu'; JAX has the devices {devices}. "
            "Install jax[tpu] on a TPU machine, or choose auto."
        )
    return Distribution() if strategy == "one" or len(devices) == 1 else JaxDistribution()
