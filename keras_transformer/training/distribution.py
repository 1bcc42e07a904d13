"""The devices that train one model together: one, the replicas of TensorFlow, or those of JAX."""

import contextlib

import keras

from keras_transformer.config import STRATEGIES
from keras_transformer.errors import InputError
from keras_transformer.training.one_device import Distribution


@contextlib.contextmanager
def started(strategy="auto", write=print):
    """Yields what `start` returns, and closes it at the end.

    Raises:
        WorkerLost: another worker has stopped.
    """
    devices = start(strategy, write)
    try:
        yield devices
    except BaseException as error:
        failure = devices.failure_of(error)
        if failure is error:
            raise
        raise failure from error
    finally:
        devices.close()


def start(strategy="auto", write=print):
    """Returns the `Distribution` of a strategy; waits for the other workers, if there are any.

    Args:
        strategy: "one" device; "mirrored": all GPUs of this machine, or its logical CPU devices if
            it has no GPU; "multi_worker": the machines that TF_CONFIG (with JAX,
            JAX_COORDINATOR_ADDRESS) or SLURM describes; "model_parallel": the devices of this
            machine, each with a part of the model (JAX); "tpu"; or "auto": the workers of that
            variable, otherwise several GPUs, otherwise one device. With JAX, every strategy except
            "one" uses all devices.
        write: called with a line of text when there are other workers to wait for.
    Raises:
        InputError: unknown name, no such devices, or an invalid description of the cluster.
    """
    if strategy not in STRATEGIES:
        raise InputError(
            f"Expected a strategy: {', '.join(STRATEGIES)}. Received: strategy={strategy!r}."
        )
    backend = keras.backend.backend()
    if strategy == "model_parallel" and backend != "jax":
        raise InputError(
            "Expected the JAX backend, which alone divides a model. Received: "
            f"strategy='model_parallel', KERAS_BACKEND={backend}. Set KERAS_BACKEND=jax."
        )
    if backend == "tensorflow":
        from keras_transformer.training import tensorflow_distribution

        return tensorflow_distribution.start(strategy, write)
    if backend == "jax":
        from keras_transformer.training import jax_distribution

        return jax_distribution.start(strategy, write)
    if strategy not in ("auto", "one"):
        raise InputError(
            "Expected one device: PyTorch trains on one. Received: "
            f"strategy={strategy!r}. Use the TensorFlow or the JAX backend."
        )
    return Distribution()
