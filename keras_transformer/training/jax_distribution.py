"""Training with JAX on the devices of one machine, or of several processes on several machines.

What this file relies on in Keras 3.15 that is not part of its public interface; the tests in
`test_data_parallel.py` fail if Keras changes one of these: `model._get_jax_state`,
`model.jax_state_sync`, `model._jax_state` and `model._jax_state_synced`.
"""

import atexit
import contextlib
import os
import re
import socket
import sys
import threading
import time

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from keras_transformer.data.fit_batches import FiniteBatches
from keras_transformer.errors import InputError
from keras_transformer.training.model_parallel import model_parallel
from keras_transformer.training.one_device import Distribution, WorkerLost

CONNECT_SECONDS = 300
"""How long a process waits for the others when it starts."""
LAST_SECONDS = 2
"""How long the first process outlives an error: JAX kills the others when it ends."""
LOST = re.compile("gloo|nccl|heartbeat|coordination", re.IGNORECASE)
"""Found in the messages of JAX that tell of other processes."""


class JaxDistribution(Distribution):
    """All JAX devices of this machine; JAX divides each step, so it is that of one device.

    Args:
        of_keras: a `keras.distribution.Distribution`.
        num_replicas: number of devices with an equal share of the rows of every batch.
    """

    def __init__(self, of_keras, num_replicas):
        self._before = keras.distribution.distribution()
        keras.distribution.set_distribution(of_keras)  # `fit` reads it too
        self.num_replicas = num_replicas
        self._num_devices = of_keras.device_mesh.devices.size

    def __str__(self):
        if self.num_replicas > 1:
            return super().__str__()
        return f"one model on {self._num_devices} devices"

    def close(self):
        keras.distribution.set_distribution(self._before)


class JaxWorkers(Distribution):
    """The JAX devices of several processes, which `jax.distributed` has connected.

    Only in the steps of `fit` and `evaluate`, an array spans all processes. Otherwise, each of them
    has a model of its own, so that the first can translate and write alone.
    """

    def __init__(self):
        self.num_replicas = jax.device_count()
        self.num_workers = jax.process_count()
        self.is_chief = jax.process_index() == 0
        if jax.local_device_count() * self.num_workers != self.num_replicas:
            raise InputError(
                "Expected as many devices in each process. Received: "
                f"{jax.local_device_count()} of {self.num_replicas} in one of {self.num_workers}. "
                "Choose them by CUDA_VISIBLE_DEVICES."
            )
        mesh = Mesh(jax.devices(), ("batch",))
        self._rows = NamedSharding(mesh, PartitionSpec("batch"))
        self._whole = NamedSharding(mesh, PartitionSpec())

    def dataset(self, dataset):
        if isinstance(dataset, FiniteBatches):
            return FiniteBatches(lambda: self._divided(dataset.generate()), len(dataset))
        return self._divided(dataset)

    def _divided(self, batches):
        """Yields batches whose rows are divided among the devices; each process has made all."""
        for batch in batches:
            yield keras.tree.map_structure(lambda x: spread(np.asarray(x), self._rows), batch)

    def model_class(self, model_class, num_parts=1):
        model_class = super().model_class(model_class, num_parts)
        return type("SharedModel", (StepOfWorkers, model_class), {"whole": self._whole})

    def total(self, value):
        value = np.asarray(value)
        content = np.ascontiguousarray(value).reshape(-1).view("uint8")  # JAX rounds 64 bits
        of_all = multihost_utils.process_allgather(content).view(value.dtype)
        return of_all.sum(axis=0, dtype=value.dtype).reshape(value.shape)

    def failure_of(self, error):
        if getattr(error, "signal_number", None) is None:  # all workers end together after one
            _leave_after(error, LAST_SECONDS if self.is_chief else 0)
        is_of_jax = isinstance(error, (ValueError, RuntimeError)) and not isinstance(
            error, (InputError, WorkerLost)
        )
        return WorkerLost() if is_of_jax and LOST.search(str(error)) else error


class StepOfWorkers:
    """A mix-in that stands before the model's class, whose variables are those of this process."""

    def _get_jax_state(self, **kinds):
        state = super()._get_jax_state(**kinds)
        return jax.tree.map(lambda x: spread(x, self.whole), state)

    def jax_state_sync(self):
        if getattr(self, "_jax_state", None) and not self._jax_state_synced:
            self._jax_state = {
                kind: [x.addressable_data(0) for x in values]
                for kind, values in self._jax_state.items()
            }
        super().jax_state_sync()

    def train_step(self, state, data):
        results = super().train_step(state, data)
        return jax.lax.with_sharding_constraint(results, self.whole)

    def test_step(self, state, data):
        results = super().test_step(state, data)
        return jax.lax.with_sharding_constraint(results, self.whole)


def spread(array, sharding):
    """Returns the array of all processes whose parts on this one's devices are those of `array`."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def start(strategy, write):
    """Returns the `Distribution` of a strategy, see `distribution.start`."""
    workers = None
    if strategy in ("auto", "multi_worker"):
        workers = workers_of_variables()
    if workers is not None and workers["num_processes"] > 1 or strategy == "multi_worker":
        connect(workers, write)
        if jax.process_count() > 1:
            return JaxWorkers()
    devices = keras.distribution.list_devices()
    if strategy == "tpu" and not devices[0].startswith("tpu"):
        raise InputError(
            f"Expected a TPU. Received: strategy='tpu'; JAX has the devices {devices}. "
            "Install jax[tpu] on a TPU machine, or choose auto."
        )
    if strategy == "one" or len(devices) == 1:
        return Distribution()
    if strategy == "model_parallel":
        return JaxDistribution(model_parallel(), num_replicas=1)
    return JaxDistribution(keras.distribution.DataParallel(), len(devices))


# === The processes of several machines ===


def workers_of_variables():
    """Returns the arguments of `jax.distributed.initialize` that variables of the environment name.

    None: JAX_COORDINATOR_ADDRESS is not set.

    Raises:
        InputError: they do not describe a cluster and a process of it.
    """
    names = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
    address, *numbers = (os.environ.get(name) for name in names)
    if address is None:
        return None
    with contextlib.suppress(ValueError, TypeError):
        num_processes, process_id = map(int, numbers)
        port = int(address.rpartition(":")[2])
        if ":" in address and 0 < port < 2**16 and 0 <= process_id < num_processes:
            return dict(
                coordinator_address=address, num_processes=num_processes, process_id=process_id
            )
    given = zip(names, (address, *numbers), strict=True)
    raise InputError(
        "Expected the first process's HOST:PORT, the number of processes, and which of them this "
        f"is, from 0 on. Received: {', '.join(f'{name}={value}' for name, value in given)}."
    )


def connect(workers, write):
    """Connects this process with the others, before JAX computes anything.

    Args:
        workers: what `workers_of_variables` returns; None: JAX asks SLURM, Open MPI, Kubernetes or
            the TPU machine that has started the process.
    Raises:
        InputError: there is no cluster, or not all of it can be reached.
    """
    if workers is None:
        write("workers     waiting for all")
    else:
        write(f"workers     waiting for all {workers['num_processes']}")
        if workers["process_id"] > 0:
            _wait_for(workers["coordinator_address"])
    with contextlib.suppress(AttributeError):  # an option that older versions do not have
        jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    errors = []

    def initialize():
        try:
            # which would end the whole process when this time is over
            times = dict(initialization_timeout=10 * CONNECT_SECONDS)
            jax.distributed.initialize(**times, **(workers or {}))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=initialize, daemon=True)
    thread.start()
    try:
        thread.join(CONNECT_SECONDS)  # a signal is handled meanwhile
        if thread.is_alive():
            raise InputError(
                f"Expected all processes within {CONNECT_SECONDS} seconds. Received: not all. "
                "Start the same command for each JAX_PROCESS_ID."
            )
    except BaseException as error:
        _leave_after(error)
        raise
    if errors:
        raise InputError(
            "Expected several processes, described by JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES "
            "and JAX_PROCESS_ID, or by SLURM and others that JAX knows, and JAX not used before. "
            f"Received: {errors[0]}"
        ) from errors[0]


def _wait_for(address):
    """Waits until the first process listens: JAX would end this process if it does not."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise InputError(
                    "Expected a first process that answers. Received: "
                    f"JAX_COORDINATOR_ADDRESS={address}, and in {CONNECT_SECONDS} seconds: {error}."
                ) from None
            time.sleep(0.2)


def _leave_after(error, seconds=0):
    """Lets Python end without JAX, which would wait for the others and then call `abort`."""
    code = 2 if isinstance(error, InputError) else 1
    if isinstance(error, SystemExit):
        code = error.code
    if isinstance(error, KeyboardInterrupt):
        code = 130

    def leave():
        time.sleep(seconds)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)

    atexit.register(leave)  # runs before what JAX has registered
