"""Whether a device computes in a lower precision any faster than in float32."""

import time

import keras
import numpy as np
from keras import ops

WIDTH = 512  # of the square matrices whose products are timed
LEAST_REPEATS, LEAST_SECONDS = 3, 0.4  # of the measurement


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
