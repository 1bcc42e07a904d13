import importlib
import inspect
import itertools
import pathlib
import socket
import types

import numpy as np
import pytest


class Stopped(Exception):
    """Ends a training before its first step."""


@pytest.fixture
def start_training(tmp_path, monkeypatch, corpus):
    """Starts a training with some settings; returns what `fit` would have been called with.

    The training text is that of the pairs, and so is the validation text, unless `corpora` is None.
    """
    module = importlib.import_module("keras_transformer.training.train")
    arguments = inspect.signature(module.fit)
    number = itertools.count()

    def stop(*args, **kwargs):
        raise Stopped(arguments.bind(*args, **kwargs).arguments)

    monkeypatch.setattr(module, "fit", stop)

    def start(config, output=None, corpora=(corpus, corpus)):
        output = output or tmp_path / f"run-{next(number)}"
        lines = []
        with pytest.raises(Stopped) as stopped:
            module.train(config, output, corpora=corpora, write=lines.append)
        started = types.SimpleNamespace(**stopped.value.args[0], lines=lines)
        (started.bleu,) = (c for c in started.callbacks if type(c).__name__ == "BleuCallback")
        return started

    return start


@pytest.fixture(scope="session")
def steps_program():
    """The path of a program that takes steps of `fit` and writes what came of them."""
    return pathlib.Path(__file__).with_name("steps_program.py")


@pytest.fixture(scope="session")
def write_batches():
    """Writes ten batches of a corpus, of unequal numbers of tokens, for that program."""

    def write(path, corpus, tokenizer, static_shapes=False):
        from keras_transformer.data import TranslationBatches

        batches = TranslationBatches(
            corpus, tokenizer, batch_tokens=200, seed=1, static_shapes=static_shapes
        )
        dataset = batches.dataset().as_numpy_iterator()
        arrays = {}
        for i, (inputs, labels, weights) in zip(range(10), dataset, strict=False):
            for name, array in {**inputs, "labels": labels, "weights": weights}.items():
                arrays[f"{name}/{i}"] = array
        np.savez(path, **arrays)

    return write


@pytest.fixture(scope="session")
def free_ports():
    """Returns some ports of this machine that nobody listens on."""

    def find(number):
        sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
        ports = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        return ports

    return find
