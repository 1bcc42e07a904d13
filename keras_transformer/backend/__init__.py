"""The few performance-critical operations that have an implementation for each backend.

`portable.py` holds the reference in `keras.ops`, for every backend. A module named after a backend
replaces what that backend can do faster, under the same names; a test compares the results.
"""

import keras

from keras_transformer.backend.portable import (
    TokenLosses,
    add_bias,
    batch_gather,
    cache_position,
    cache_update,
    compile_function,
    dropout,
    enable_determinism,
    ensure_shape,
    extend_cache,
    gradients,
    linear_recurrence,
    num_search_threads,
    one_thread_per_operation,
    projected_cross_entropy,
    scan,
    search_loop,
    seed_step,
    start_cache,
    take_rows,
    token_cross_entropy,
    without_gradients,
)

__all__ = [
    "TokenLosses",
    "add_bias",
    "cache_position",
    "cache_update",
    "compile_function",
    "dropout",
    "enable_determinism",
    "ensure_shape",
    "gradients",
    "linear_recurrence",
    "num_search_threads",
    "one_thread_per_operation",
    "projected_cross_entropy",
    "scan",
    "search_loop",
    "seed_step",
    "start_cache",
    "batch_gather",
    "take_rows",
    "token_cross_entropy",
    "extend_cache",
    "without_gradients",
]

if keras.backend.backend() == "tensorflow":
    from keras_transformer.backend import tensorflow

    globals().update((name, value) for name, value in vars(tensorflow).items() if name in __all__)
