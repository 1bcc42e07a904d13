import contextlib
import importlib
import inspect
import itertools
import pathlib
import socket
import types

import numpy as np
import pytest

SETTINGS = [
    "model.num_layers=1",
    "model.d_model=16",
    "model.ff_dim=24",
    "model.num_heads=2",
    "model.dropout=0.2",
    "tokenizer.vocab_size=150",
    "training.batch_tokens=192",
    "training.warmup_steps=2",
    "training.checkpoint_every=2",
    "training.max_steps=5",
    "training.keep_checkpoints=2",
    "training.schedule=inverse_square_root",
    "decoding.max_length=4",
]


NUM_VALIDATED = 8
"""The first of the pairs, which a training validates with: all would take as long as its steps."""


class Stopped(Exception):
    """Ends a training before its first step, or after its last."""


@pytest.fixture(scope="session", autouse=True)
def without_first_checks(first_checks):
    """All trainings here leave them out, but for one in `test_train.py`."""


@pytest.fixture
def start_training(tmp_path, monkeypatch, corpus, validated):
    """Starts a training with some settings; returns what `fit` would have been called with.

    The training text is that of the pairs, and the validation text `NUM_VALIDATED` of them, unless
    `corpora` is None.
    """
    module = importlib.import_module("keras_transformer.training.train")
    begin_module = importlib.import_module("keras_transformer.training.start_or_resume")
    arguments = inspect.signature(module.fit)
    number = itertools.count()

    def stop(*args, **kwargs):
        raise Stopped(arguments.bind(*args, **kwargs).arguments)

    def start(config, output=None, corpora=(corpus, validated), init_from=None):
        output = output or tmp_path / f"run-{next(number)}"
        lines = []
        with monkeypatch.context() as patch, pytest.raises(Stopped) as stopped:
            patch.setattr(module, "fit", stop)
            # builds a small model of the settings; `test_train.py` has settings that it refuses
            patch.setattr(begin_module, "check_model", lambda config: None)
            module.train(config, output, init_from, corpora, write=lines.append)
        started = types.SimpleNamespace(**stopped.value.args[0], lines=lines)
        (started.bleu,) = (c for c in started.callbacks if type(c).__name__ == "BleuCallback")
        return started

    return start


@pytest.fixture(scope="session")
def validated(sentence_pairs):
    """The pairs that a training validates with, as a `ParallelCorpus`."""
    from keras_transformer.data import ParallelCorpus

    return ParallelCorpus.from_pairs(sentence_pairs[:NUM_VALIDATED])


@pytest.fixture(scope="session")
def steps_program():
    """The path of a program that takes steps of `fit` and writes what came of them."""
    return pathlib.Path(__file__).with_name("steps_program.py")


@pytest.fixture(scope="session")
def write_batches():
    """Writes ten batches of a corpus, of unequal numbers of tokens, for that program.

    The first two words of all pairs are aligned.
    """

    def write(path, corpus, tokenizer, static_shapes=0):
        from keras_transformer.data import TranslationBatches
        from keras_transformer.data.ragged_ids import RaggedIds

        batches = TranslationBatches(
            corpus, tokenizer, batch_tokens=200, seed=1, static_shapes=static_shapes
        )
        links = np.tile(np.array([[0, 0], [0, 1], [1, 1]]), (len(corpus), 1))
        batches.links = RaggedIds(links, [3] * len(corpus))
        arrays = {}
        for i, (inputs, labels, weights) in zip(range(10), batches.arrays(), strict=False):
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


@pytest.fixture
def files(tmp_path, sentence_pairs):
    """The settings that name files with the sentence pairs."""
    return write_pairs(tmp_path, sentence_pairs)


@pytest.fixture
def config(files):
    """The `Config` of a training of five steps, which validates at the steps 2, 4 and 5."""
    return config_of(files)


def write_pairs(directory, pairs):
    for split, number in (("train", None), ("valid", NUM_VALIDATED)):
        for index, side in enumerate(("source", "target")):
            text = "".join(f"{pair[index]}\n" for pair in pairs[:number])
            (directory / f"{side}_{split}").write_text(text, encoding="utf-8")
    return files_in(directory)


def files_in(directory):
    return [
        f"data.{split}=[{{source: {directory}/source_{split}, target: {directory}/target_{split}}}]"
        for split in ("train", "valid")
    ]


def config_of(files):
    from keras_transformer.config import Config

    return Config().override([*SETTINGS, *files])


@pytest.fixture(scope="session")
def uncompiled_steps():
    """A context in which the steps of a training are not compiled.

    To compile a step of such a small model takes longer than a few steps. `test_tasks.py` compiles.
    """
    from keras_transformer.models.decoder_model import TokenModel

    compile_model = TokenModel.compile

    def compile_eagerly(*args, **kwargs):
        return compile_model(*args, **{**kwargs, "jit_compile": False}, run_eagerly=True)

    @contextlib.contextmanager
    def uncompiled_steps():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TokenModel, "compile", compile_eagerly)
            yield

    return uncompiled_steps


@pytest.fixture(scope="session")
def train_quietly(uncompiled_steps):
    """Trains without compiling the steps, and keeps the lines of the report as `lines`."""
    from keras_transformer.training import train

    lines = []

    def run(config, output, **kwargs):
        lines.clear()
        with uncompiled_steps():
            return train(config, output, write=lines.append, **kwargs)

    run.lines = lines
    return run


@pytest.fixture(scope="module")
def uncompiled(compiling_nothing):
    """Does what `eagerly` does, for the fixtures of a module too."""
    with compiling_nothing():
        yield


@pytest.fixture
def untranslated(monkeypatch):
    """Takes the references for translations: a search would take longer than the steps."""
    from keras_transformer.training import BleuCallback

    monkeypatch.setattr(BleuCallback, "translations", lambda callback: callback.references)


@pytest.fixture
def train_to_last_checkpoint(train_quietly, untranslated, monkeypatch):
    """Trains as `train_quietly` does, but ends before the weights are chosen, which takes time."""
    module = importlib.import_module("keras_transformer.training.train")

    def stop(*args):
        raise Stopped

    def run(config, output):
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(module, "candidates", stop)
            train_quietly(config, output)

    return run


@pytest.fixture(scope="session")
def trained(made_once, sentence_pairs, train_quietly):
    """`(config, path)` of a run that has ended; a test copies it before it changes anything."""
    pairs = made_once("pairs_of_trained", lambda path: write_pairs(path, sentence_pairs))
    config = config_of(files_in(pairs))
    made = made_once("trained", lambda path: train_quietly(config, path / "run"))
    return config, made / "run"
