"""What a command that fails ends with: its exit code, and one line."""

import pathlib
import signal

import pytest

from keras_transformer import console


def failing(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "run/config.yaml"),
        FileNotFoundError(2, "No such file or directory", "run/config.yaml"),
        FileExistsError(17, "File exists", "run/config.yaml"),
        IsADirectoryError(21, "Is a directory", "run/config.yaml"),
        NotADirectoryError(20, "Not a directory", "run/config.yaml"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_path_that_the_system_refuses_is_an_input_error(error, capsys):
    assert console.run(failing(error)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-transformer: error: ")
    assert error.strerror in line and "run/config.yaml" in line


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("of a library"), KeyError("x")]
)
def test_what_is_nobodys_input_is_a_failure(error, capsys):
    assert console.run(failing(error)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"keras-transformer: failed: {type(error).__name__}: ")


def test_a_directory_that_refuses_a_run(tmp_path, monkeypatch, capsys):
    """By the command; as root, whom no directory refuses, the system is made to."""
    from keras_transformer.cli import main

    def refuse(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    texts = tmp_path / "a.txt"
    texts.write_text("A dog.\nA cat.\n")
    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    arguments = ["--source-train", texts, "--target-train", texts, "--output", tmp_path / "run"]
    small = ["model.num_layers=1", "tokenizer.vocab_size=14", "data.validation_share=0.5"]
    assert main(["train", *map(str, arguments), "--set", *small]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("keras-transformer: error: ") and "Permission denied" in last


def test_a_signal_that_training_obeyed():
    error = RuntimeError("interrupted; the work is saved")
    error.signal_number = signal.SIGTERM
    assert console.run(failing(error)) == 143
