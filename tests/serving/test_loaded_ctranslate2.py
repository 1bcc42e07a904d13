"""An export for CTranslate2 is served with the contract of a SavedModel."""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import requests

pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

import tensorflow as tf

from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.serving.loaded_ctranslate2 import LoadedCTranslate2
from keras_transformer.serving.loaded_model import LoadedModel

CONTRACT = pathlib.Path(__file__).with_name("test_contract.py")
TEXTS = ["A dog runs.", "", "The woman in the green coat is waiting for the bus.", "мир \U0001f44d"]


@pytest.fixture(scope="module")
def loaded(exported_ctranslate2):
    return LoadedCTranslate2(exported_ctranslate2)


def test_the_signatures_are_those_of_a_saved_model(loaded, exported):
    """But for those that CTranslate2 cannot give: the same names, types, shapes and answers."""
    saved_model = LoadedModel(exported)
    missing = {"attention", "constrained", "explain", "forced_attention"}
    assert set(loaded.signatures) == set(saved_model.signatures) - missing
    inputs = {
        "text": np.array([text.encode() for text in TEXTS], object),
        "target": np.array([b"Ein Hund.", b"", b"Der Bus", b"x"], object),
        "ids": np.array([[5, 6, 2, 7, 3, 9], [1, 0, 8, 999, -1, 5]], np.int32),
    }
    for name, signature in loaded.signatures.items():
        theirs = saved_model.signatures[name]
        for tensors, wanted in (
            (signature.inputs, theirs.inputs),
            (signature.outputs, theirs.outputs),
        ):
            assert {k: t.dtype for k, t in tensors.items()} == {
                k: t.dtype for k, t in wanted.items()
            }
            for key, tensor in tensors.items():
                assert tf.TensorShape(tensor.shape).is_compatible_with(wanted[key].shape)
        given = {key: inputs[key] for key in signature.inputs}
        found = signature(given)
        if name == "n_best":  # searches as serving_default does, which is compared
            assert list(found) == ["scores", "translations", "truncated"]
            best = loaded.signatures["serving_default"](given)
            for key, array in found.items():
                one = best[key if key in best else key[:-1]]
                assert array.dtype == one.dtype and array.shape == (len(TEXTS), 2)
                np.testing.assert_array_equal(array[:, 0], one)
            assert found["translations"][1, 1] == b"" and found["scores"][1, 1] == IMPOSSIBLE
            continue
        expected = theirs(given)
        assert list(found) == list(expected)
        for key, array in found.items():
            wanted = expected[key]
            assert array.dtype == wanted.dtype and array.shape == wanted.shape
            if key == "score":
                np.testing.assert_allclose(array, wanted, rtol=0.02, atol=0.02)
            else:
                np.testing.assert_array_equal(array, wanted)
    saved_model.close()


def test_only_rows_of_a_fixed_size_are_batched(loaded):
    batchable = {name for name, signature in loaded.signatures.items() if signature.is_batchable}
    assert batchable == {"serving_default", "n_best", "score"}


def test_no_rows_and_unequal_rows(loaded):
    none = {"text": np.array([], object)}
    for name in ("serving_default", "n_best", "encode"):
        assert all(len(array) == 0 for array in loaded.signatures[name](none).values())
    unequal = {"text": np.array([b"a", b"b"], object), "target": np.array([b"a"], object)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected a target for each text"):
        loaded.signatures["score"](unequal)


def test_it_takes_over_from_a_saved_model(start_echo_server, exported_ctranslate2):
    server = start_echo_server()

    def answer():
        response = requests.post(f"{server.rest}:predict", json={"instances": ["A dog runs."]})
        return response.json()["predictions"][0]["translation"]

    assert answer() == "A dog runs."
    (server.directory / "2").symlink_to(exported_ctranslate2)
    end = time.monotonic() + 60
    while (found := answer()) == "A dog runs.":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert found == "Ein Hund läuft."


@pytest.mark.slow
def test_all_of_the_contract(exported_ctranslate2, start_server, tmp_path):
    """The tests of any server pass; the variables name the server to them."""
    (tmp_path / "1").symlink_to(exported_ctranslate2)
    server = start_server(tmp_path, "--model-name", "en-de")
    variables = {
        "KERAS_TRANSFORMER_SERVER": server.rest,
        "KERAS_TRANSFORMER_SERVER_GRPC": server.grpc,
    }
    command = [sys.executable, "-m", "pytest", "-q", CONTRACT]
    process = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout
