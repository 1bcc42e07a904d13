"""Runs a command or a program on JAX with what makes short trainings on a GPU faster.

    KERAS_BACKEND=jax python benchmarks/without_tensorflow.py benchmarks/ablations.py ARGUMENTS
    KERAS_BACKEND=jax python benchmarks/without_tensorflow.py train ARGUMENTS

This is how the trainings of `README.md` in this directory ran, on machines without TensorFlow.

JAX compiles for each shape, which takes longer than training with it. Three things shorten this
further: dropout hashes the places of
the entries instead of drawing from Threefry, texts are translated in large batches, and the
variables of `ENVIRONMENT` keep XLA from timing kernels and let processes share what it compiles.
"""

# ruff: noqa: E402 (JAX reads the environment when it is imported)
import os
import runpy
import sys

import pinned  # noqa: F401, whose lines say what is missing

ENVIRONMENT = {
    "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several trainings share the GPU
    "JAX_COMPILATION_CACHE_DIR": "/tmp/jax-cache",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}
for name, value in ENVIRONMENT.items():
    os.environ.setdefault(name, value)

import jax.numpy as jnp
from jax import lax

from keras_transformer import backend
from keras_transformer.translation import translator

BATCH_SIZE = 512  # texts that are translated together: a GPU has room for more than a CPU


def dropout(x, rate, seed_generator):
    """Returns `x` with each entry zeroed with probability `rate` and the others scaled up.

    An entry is dropped if the hash of its place and of the seed is small. The hash is Wellons's
    lowbias32 (https://nullprogram.com/blog/2018/07/31/), twice, once for each half of the seed.
    """
    halves = jnp.asarray(seed_generator.next(), "uint32")
    bits = lax.iota(jnp.uint32, x.size).reshape(x.shape)
    for half in halves:
        bits = (bits ^ half) * jnp.uint32(0x9E3779B9)
        bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
        bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
        bits = bits ^ (bits >> 16)
    kept = bits >= jnp.uint32(rate * 2**32)
    return jnp.where(kept, x / (1 - rate), jnp.zeros_like(x))


def main():
    if not sys.argv[1:]:
        sys.exit("Expected a program or a command of keras-transformer. Received: no arguments.")
    program, *arguments = sys.argv[1:]
    sys.argv[:] = [program, *arguments]
    backend.dropout = dropout
    defaults = translator.Translator.__init__.__defaults__
    translator.Translator.__init__.__defaults__ = tuple(
        BATCH_SIZE if default == 64 else default for default in defaults
    )
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        sys.argv[:] = ["keras-transformer", program, *arguments]
        runpy.run_module("keras_transformer", run_name="__main__")


if __name__ == "__main__":
    main()
