import pathlib
import socket

import numpy as np
import pytest


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
