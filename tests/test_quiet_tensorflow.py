"""What standard error shows of an import of TensorFlow, in fresh processes.

Most import a module that writes what TensorFlow writes, in a fraction of the time.
"""

import os
import subprocess
import sys

import pytest

LOG = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1795503361.780535    6582 port.cc:153] oneDNN custom operations are on.\n"
    "2026-01-02 03:04:05.678: I cpu_feature_guard.cc:227] This binary is optimized to use\n"
    "To enable the following instructions: AVX2, rebuild TensorFlow.\n"
)
OTHER = "a line of another thread\n"


@pytest.fixture
def run(tmp_path):
    """A function that runs a program beside a module `tensorflow`, and returns standard error."""
    (tmp_path / "tensorflow.py").write_text(
        f"""
import os, sys, types
print(os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
os.write(2, {LOG.encode()!r} + {OTHER.encode()!r})
print("a line of Python", file=sys.stderr)
config = types.SimpleNamespace(list_physical_devices=lambda: os.write(2, b"E0000 cuInit\\n"))
if "FAIL" in os.environ:
    raise ImportError("a library is missing")
"""
    )

    def run(program, **environment):
        kept = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        process = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=kept | environment,
        )
        assert process.returncode == ("FAIL" in environment), process.stderr
        return process

    return run


def test_what_is_not_of_the_log_is_shown_and_so_is_what_comes_later(run):
    program = (
        "import os, keras_transformer, tensorflow\n"
        "os.write(2, b'W0000 a warning\\nE0000 an error\\n'); print(os.environ.keys())"
    )
    process = run(program)
    shown = f"{OTHER}a line of Python\nW0000 a warning\nE0000 an error\n"
    assert process.stderr == shown
    level, variables_afterwards = process.stdout.splitlines()
    assert level == "1"
    assert "TF_CPP_MIN_LOG_LEVEL" not in variables_afterwards


def test_the_level_that_the_user_has_set_stays(run):
    program = "import os, keras_transformer, tensorflow; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    process = run(program, TF_CPP_MIN_LOG_LEVEL="2")
    assert process.stdout == "2\n2\n"
    assert process.stderr == f"{OTHER}a line of Python\n"


def test_an_import_that_fails_shows_everything(run):
    process = run("import keras_transformer, tensorflow", FAIL="")
    assert process.stderr.startswith(f"{LOG}{OTHER}a line of Python\n")
    assert process.stderr.endswith("ImportError: a library is missing\n")


@pytest.mark.parametrize(
    "imports, environment",
    [
        ("keras_transformer, tensorflow", {"KERAS_TRANSFORMER_TRACEBACK": "1"}),
        ("keras_transformer, tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "0"}),
        ("tensorflow, keras_transformer", {}),
    ],
)
def test_messages_are_shown_on_request_and_before_the_package_is_imported(
    imports, environment, run
):
    assert run(f"import {imports}", **environment).stderr == f"{LOG}{OTHER}a line of Python\n"


def test_standard_error_may_be_closed(run):
    process = run("import os; os.close(2); import keras_transformer, tensorflow; print('done')")
    assert process.stdout.endswith("done\n")


def test_standard_error_may_be_an_object_that_can_only_write(run):
    program = (
        "import sys, types; written = []\n"
        "sys.stderr = types.SimpleNamespace(write=written.append)\n"
        "import keras_transformer, tensorflow; print(''.join(written))\n"
        "sys.stderr = sys.__stderr__"
    )
    assert "a line of Python\n" in run(program).stdout


def test_layers_are_imported_and_used_in_silence_but_a_warning_of_tensorflow_is_seen():
    program = (
        "import keras_transformer.layers, tensorflow as tf\n"
        "keras_transformer.layers.FeedForward(3)(tf.ones((1, 2, 4)))\n"
        "tf.linalg.cholesky(-tf.eye(2))"
    )
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    for name in ("TF_CPP_MIN_LOG_LEVEL", "KERAS_TRANSFORMER_TRACEBACK"):
        environment.pop(name, None)
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert process.returncode == 0, process.stderr
    (line,) = process.stderr.splitlines()
    assert "Cholesky decomposition was not successful" in line
