"""An export runs where no Python is: a C program against the libraries of TensorFlow's wheel."""

import pathlib
import shutil
import subprocess

import pytest
import tensorflow as tf
import tensorflow_text

from keras_transformer.export import export_saved_model
from keras_transformer.translation.loading import load

SOURCE = pathlib.Path(__file__).with_name("client.c")
OP_LIBRARIES = pathlib.Path(tensorflow_text.__file__).parent / "python" / "ops"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """The compiled client."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    libraries = tf.sysconfig.get_lib()
    program = tmp_path_factory.mktemp("client") / "client"
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", SOURCE, "-o", program]
    command += ["-I", tf.sysconfig.get_include(), "-L", libraries, f"-Wl,-rpath,{libraries}"]
    command += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    subprocess.run(command, check=True)
    return program


def translate(client, saved_model, lines):
    """Returns a list of (translation, score, truncated), one a line of bytes."""
    libraries = [OP_LIBRARIES / "_sentencepiece_tokenizer.so"]
    process = subprocess.run(
        [client, saved_model, *libraries],
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        env={"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.returncode == 0, process.stderr.decode()
    rows = [line.rsplit(b"\t", 2) for line in process.stdout.splitlines()]
    return [(text.decode("utf-8"), float(score), bool(int(cut))) for text, score, cut in rows]


def test_c_client_translates_as_the_translator_does(client, exported, translator, texts, tmp_path):
    moved = shutil.copytree(exported, tmp_path / "moved" / "1")
    lines = [text.encode() for text in texts]
    lines += [b"A dog \xff runs.", b"\xc3(\xf0\x9f"]  # no UTF-8
    texts = [line.decode("utf-8", "replace") for line in lines]
    expected = [best for (best,) in translator.translate(texts)]
    found = translate(client, moved, lines)
    assert [(text, cut) for text, _, cut in found] == [(e.text, e.truncated) for e in expected]
    assert all(abs(s - e.score) < 1e-5 for (_, s, _), e in zip(found, expected, strict=True))


@pytest.mark.slow
def test_c_client_expands_weights_that_are_stored_small(client, translator, tmp_path):
    path = export_saved_model(translator, tmp_path, weights="float16")
    lines = ["A dog runs.", "Where is the bus?"]
    found = translate(client, path, [line.encode() for line in lines])
    assert [text for text, _, _ in found] == load(path)(lines) == translator(lines)
