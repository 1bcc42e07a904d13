"""Writes and reads the weights of a model, without the state of its optimizer."""

import contextlib


def write_weights(model, path):
    """Writes the weights of a model to a `.weights.h5` file."""
    with _without_optimizer(model):
        model.save_weights(path)


def read_weights(model, path):
    """Gives a model the weights in a `.weights.h5` file."""
    with _without_optimizer(model):
        model.load_weights(path)


@contextlib.contextmanager
def _without_optimizer(model):
    """Hides the optimizer of a compiled model from Keras.

    Keras counts its state among the weights. A training that starts from the weights of another
    run would then go on with that run's steps and moments, and the file is three times as large.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        yield
        return
    model.optimizer = None
    try:
        yield
    finally:
        model.optimizer = optimizer
