"""The devices that train one model together: one device, TensorFlow's replicas, or JAX's devices.

base.py         one device, and the interface of the others
start.py        starts what the backend and the name of a strategy ask for
cluster.py      the workers of several machines, as TF_CONFIG describes them
slurm.py        the same from SLURM (needs TensorFlow)
tensorflow.py   `tf.distribute` (needs TensorFlow)
jax.py          `keras.distribution`
"""

from keras_transformer.training.distribution.base import Distribution, WorkerLost
from keras_transformer.training.distribution.start import start, started

__all__ = ["Distribution", "WorkerLost", "start", "started"]
