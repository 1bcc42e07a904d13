"""Training on several devices of one machine with JAX (`keras.distribution.DataParallel`)."""

import keras

from keras_transformer.errors import InputError
from keras_transformer.training.distribution.base import Distribution


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


def start(strategy):
    """Returns the `Distribution` of a strategy, see `distribution.start`."""
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
