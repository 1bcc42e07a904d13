"""The few hot operations that deserve one implementation a backend.

`portable.py` holds the reference in `keras.ops`, for every backend; a module named after a
backend replaces what that backend does better. Same names, same answers: a test holds them equal.
"""

import keras

from keras_transformer.backend.portable import (
    TokenLosses,
    add_bias,
    cache_update,
    compile_function,
    dropout,
    enable_determinism,
    projected_cross_entropy,
    search_loop,
    start_cache,
    take_rows,
    token_cross_entropy,
)

if keras.backend.backend() == "tensorflow":
    from keras_transformer.backend.tensorflow import (
        add_bias,
        cache_update,
        compile_function,
        dropout,
        enable_determinism,
        projected_cross_entropy,
        search_loop,
        start_cache,
        take_rows,
        token_cross_entropy,
    )

__all__ = [
    "TokenLosses",
    "add_bias",
    "cache_update",
    "compile_function",
    "dropout",
    "enable_determinism",
    "projected_cross_entropy",
    "search_loop",
    "start_cache",
    "take_rows",
    "token_cross_entropy",
]
