"""What a call of the model costs, beside what the machine can do."""

import time

import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.checks.verdicts import check, held

ROWS, PRODUCT = 32, 1024


@check("speed")
def speed(subject):
    """A small share of the machine's best says that something else than products takes the time."""
    ids = subject.random_ids(ROWS)
    inputs = [ops.convert_to_tensor(value) for value in ids.values()]
    names = list(ids)

    def call(*tensors):
        arrays = dict(zip(names, tensors, strict=True))
        return subject.logits_tensor(**arrays)

    how = "forward"
    try:
        seconds = _seconds(backend.compile_function(call, subject.model.weights), *inputs)
    except Exception:  # one that needs a length that is a number, such as a loop over it
        how = "forward, not compiled for all lengths"
        seconds = _seconds(call, *inputs)
    matrix = ops.ones((PRODUCT, PRODUCT))
    best = 2 * PRODUCT**3 / _seconds(backend.compile_function(ops.matmul), matrix, matrix)
    positions = sum(array.size for array in ids.values()) / len(ids)
    kernels = sum(
        int(np.prod(weight.shape)) for weight in subject.model.weights if "embed" not in weight.path
    )
    used = 2 * kernels * positions / seconds
    return held(
        f"{positions / seconds:,.0f} tokens a second {how}, {used / 1e9:,.1f} GFLOP/s, "
        f"{used / best:.0%} of a product of {PRODUCT:,} x {PRODUCT:,}; weights of "
        f"{sum(int(np.prod(w.shape)) * 4 for w in subject.model.weights) / 1e6:,.1f} MB"
    )


def _seconds(function, *arguments):
    """Returns the median time of five calls, after one that compiles."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        ops.convert_to_numpy(function(*arguments))
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[2]
