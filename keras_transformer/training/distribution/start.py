"""Starts the devices that a strategy names."""

import contextlib

import keras

from keras_transformer.config import STRATEGIES
from keras_transformer.errors import InputError
from keras_transformer.training.distribution import jax
from keras_transformer.training.distribution.base import Distribution, WorkerLost


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
        from keras_transformer.training.distribution import tensorflow

        return tensorflow.start(strategy, write)
    if keras.backend.backend() == "jax":
        return jax.start(strategy)
    if strategy not in ("auto", "one"):
        raise InputError(
            "Expected one device: PyTorch trains on one. Received: "
            f"strategy={strategy!r}. Use the TensorFlow or the JAX backend."
        )
    return Distribution()
