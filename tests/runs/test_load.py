"""A run that somebody else has made: what cannot be its file or its model is refused at once."""

import os

import pytest

from keras_transformer.config import Config
from keras_transformer.errors import InputError
from keras_transformer.files.checksums import write_checksums
from keras_transformer.models import RnnSeq2Seq, Transformer
from keras_transformer.runs import Checkpoints, Run, TrainingState, load, load_run

TRANSFORMER = dict(
    num_layers=1,
    d_model=8,
    ff_dim=12,
    num_heads=2,
    positions="learned",
    max_length=300,
    attention={"name": "performer", "num_features": 5},
)
RNN = dict(d_model=6, units=10, num_layers=2)


@pytest.fixture
def new_run(tokenizer, tmp_path):
    """A function that writes a run of a model without training."""

    def new_run(model_class=Transformer, **arguments):
        arguments = arguments or TRANSFORMER
        model = model_class(tokenizer.vocab_size, **arguments)
        model.build()
        run = Run(tmp_path / "run")
        Checkpoints(run.path / "checkpoints").save_weights(model, TrainingState())
        model_settings = {"model": {"name": model.NAME, **arguments}}
        run.create(Config().merged(model_settings), tokenizer, tokenizer)
        return run

    return new_run


LARGER_TRANSFORMERS = [
    {"d_model": 1_000_000},
    {"ff_dim": 10**9},
    {"num_layers": 10**9},
    {"num_decoder_layers": 10**9},
    {"max_length": 10**9},
    {"attention": {"name": "performer", "num_features": 10**9}},
]


@pytest.mark.parametrize(
    "model_class, arguments, larger_ones",
    [
        (Transformer, TRANSFORMER, LARGER_TRANSFORMERS),
        (RnnSeq2Seq, RNN, [{"units": 10**6}, {"num_layers": 10**9}, {"d_model": 7}]),
    ],
    ids=["transformer", "rnn"],
)
def test_settings_of_a_larger_model_than_the_weights(
    new_run, model_class, arguments, larger_ones, monkeypatch
):
    run = new_run(model_class, **arguments)
    load_run(run.path)
    config = run.load_config()
    monkeypatch.setattr(load, "build_model", lambda *_: pytest.fail("built"))
    for larger in larger_ones:
        config.merged({"model": {**config.model, **larger}}).save(run.config_path)
        with pytest.raises(InputError, match="the model in config.yaml.* are not there"):
            load_run(run.path)


def test_weights_that_lack_the_bytes_of_their_arrays(new_run, monkeypatch):
    """HDF5 gives an array that was never written any size."""
    import h5py

    run = new_run()
    (path,) = run.checkpoints.all()
    with h5py.File(path / "model.weights.h5", "a") as file:
        file.create_dataset("more", (10**9, 1_000_000), "float32")
    write_checksums(path)
    monkeypatch.setattr(load, "build_model", lambda *_: pytest.fail("built"))
    with pytest.raises(InputError, match="fewer bytes than its arrays"):
        load_run(run.path)


def test_pipes_in_place_of_files(new_run):
    """None of them is opened, which would last for ever."""
    run = new_run()
    for name in (
        "identity.json",
        "finished.json",
        "tokenizer/tokenizer.model",
        "checkpoints/step-00000000/SHA256SUMS",
        "checkpoints/step-00000000/model.weights.h5",
        "averaged.weights.h5",
    ):
        path, aside = run.path / name, run.path / "aside"
        if path.exists():
            path.rename(aside)
        os.mkfifo(path)
        with pytest.raises(InputError):
            load_run(run.path, "averaged" if "averaged" in name else None)
        path.unlink()
        if aside.exists():
            aside.rename(path)
    load_run(run.path)
