"""Saved models are loaded in a new process of another backend, and give the same numbers there."""

import importlib.util
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import RnnSeq2Seq, Transformer
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
from keras_transformer.layers import RnnDecoder, TokenEmbedding
from keras_transformer.models import (
    Bert,
    BertClassifier,
    BertPretraining,
    BertTokenClassifier,
    Ensemble,
    Gpt,
    ImageCaptioner,
    VisionTransformer,
)
from tests.models.conftest import randomized

RNG = np.random.default_rng(3)
IDS = RNG.integers(4, 19, size=(2, 7)).astype("int32")
IDS[1, 5:] = 0
PAIRS = {"ids": IDS, "segment_ids": RNG.integers(0, 2, size=(2, 7)).astype("int32")}
TRANSLATIONS = {"source_ids": IDS, "target_ids": IDS[:, :5]}
IMAGES = RNG.normal(size=(2, 8, 4, 3)).astype("float32")
CAPTIONS = {"images": IMAGES, "target_ids": np.minimum(IDS, 12)}

SIZES = dict(d_model=12, ff_dim=17, num_heads=3)
BERT = dict(num_layers=1, **SIZES, dropout=0.1, max_length=97)
# no argument as the default
GPT = dict(num_layers=2, **SIZES, max_length=9, positions="alibi", dropout=0.2, pad_id=-1,
           end_id=5, attention={"name": "local", "window": 2}, layer_norm_epsilon=0.01,
           normalize_first=False, activation="relu", tie_output=False)  # fmt: skip
RNN = dict(num_layers=1, num_decoder_layers=1, d_model=12, units=10)
IMAGE = dict(image_size=(8, 4), patch_size=2, num_channels=3, num_layers=1, **SIZES)


def captioner(**arguments):
    return ImageCaptioner(13, **{**IMAGE, "num_decoder_layers": 1}, **arguments)


def new_models():
    """Returns models and their inputs, by name.

    A `Bert` is within its three models, and an `RnnSeq2Seq` with Bahdanau's attention within the
    ensemble.
    """
    bert = Bert(19, **BERT)
    luong = dict(attention="luong", score="scaled_dot_product", input_feeding=True,
                 bidirectional=False, share_embeddings=False, tie_output=False)  # fmt: skip
    multiplicative = dict(score="multiplicative", target_vocab_size=19, cell="lstm")
    other_size = {**IMAGE, "image_size": (4, 6)}
    decoder = RnnDecoder(TokenEmbedding(13, 8), units=7)
    members = [Transformer(23, num_layers=1, **SIZES), RnnSeq2Seq(23, **RNN)]
    transformer = dict(num_layers=1, num_decoder_layers=2, **SIZES, normalize_first=True)
    models = {
        "transformer": (Transformer(23, **transformer, tie_output=False), TRANSLATIONS),
        "bert pretraining": (BertPretraining(bert, next_sentence=True), PAIRS),
        "bert classifier": (BertClassifier(bert, num_classes=5, dropout=0.2), PAIRS),
        "bert token classifier": (BertTokenClassifier(bert, num_classes=4), PAIRS),
        "gpt": (Gpt(19, **GPT), IDS),
        "rnn plain": (RnnSeq2Seq(23, **RNN, attention=None, cell="lstm"), TRANSLATIONS),
        "rnn Luong": (RnnSeq2Seq(23, **RNN, attention="luong", **multiplicative), TRANSLATIONS),
        "rnn input feeding": (RnnSeq2Seq(23, **RNN, **luong), TRANSLATIONS),
        "ensemble": (Ensemble(members, "log_probabilities"), TRANSLATIONS),
        "vit": (VisionTransformer(7, **other_size, resize_positions=True), IMAGES),
        "captioner": (captioner(), CAPTIONS),
        "captioner show": (captioner(features="convolutional", decoder=decoder), CAPTIONS),
    }
    return {name: (randomized(model, RNG), inputs) for name, (model, inputs) in models.items()}


def numbers(tensors):
    return [ops.convert_to_numpy(tensor) for tensor in keras.tree.flatten(tensors)]


def captions_of(model):
    return decode(model, IMAGES, DecodingConfig(beam_size=2, max_length=5)).ids


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory of all models with inputs, and the outputs and configs by name."""
    folder = tmp_path_factory.mktemp("models")
    outputs, configs = {}, {}
    for name, (model, inputs) in new_models().items():
        model.save(folder / f"{name}.keras")
        named = inputs if isinstance(inputs, dict) else {"inputs": inputs}
        np.savez(folder / f"{name}.inputs.npz", **named)
        outputs[name] = numbers(model(inputs))
        if "captioner" in name:
            outputs[name] += numbers(captions_of(model))
        if name != "captioner show":  # its config has that of its decoder's layers too
            configs[name] = json.loads(json.dumps([type(model).__name__, model.get_config()]))
    return folder, outputs, configs


PROGRAM = """
import json, pathlib, sys
import keras, numpy as np
import keras_transformer
from keras import ops
from keras_transformer import backend
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
configs = {}
compiled = keras.backend.backend() == "jax"  # which compiles each operation otherwise
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    model = keras.models.load_model(path)
    inputs = dict(np.load(path.with_suffix(".inputs.npz")))
    inputs = inputs.get("inputs", inputs)
    inputs = keras.tree.map_structure(ops.convert_to_tensor, inputs)
    call = backend.compile_function(model, model.weights) if compiled else model
    outputs = keras.tree.flatten(call(inputs))
    if "captioner" in path.stem:
        config = DecodingConfig(beam_size=2, max_length=5)
        search = lambda images: decode(model, images, config).ids
        search = backend.compile_function(search, model.weights) if compiled else search
        outputs.append(search(inputs["images"]))
    np.savez(path.with_suffix(".outputs.npz"), *map(ops.convert_to_numpy, outputs))
    configs[path.stem] = [type(model).__name__, model.get_config()]
print(json.dumps(configs))
"""


def another_backend():
    """Returns the next of the three in a circle, or this one where it is not installed."""
    this = keras.backend.backend()
    other = {"tensorflow": "torch", "torch": "jax", "jax": "tensorflow"}[this]
    return other if importlib.util.find_spec(other) else this


def test_all_are_loaded_in_a_new_process(saved):
    """With nothing but the import of the package."""
    folder, outputs, configs = saved
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**os.environ, "KERAS_BACKEND": another_backend()},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    found_configs = json.loads(process.stdout.splitlines()[-1])
    for name, expected in outputs.items():
        with np.load(folder / f"{name}.outputs.npz") as found:
            for key, value in zip(found.files, expected, strict=True):
                np.testing.assert_allclose(
                    found[key], value, rtol=1e-4, atol=1e-5, err_msg=f"{name}: {key}"
                )
        if name in configs:
            assert found_configs[name] == configs[name]
