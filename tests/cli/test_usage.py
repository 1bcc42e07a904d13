"""Usage errors, help texts, and what every command refuses before Keras starts."""

import pathlib
import sys

import pytest

from keras_transformer import cli
from keras_transformer.config import DecodingConfig, TrainingConfig
from keras_transformer.config.settings import settings


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "the following arguments are required: COMMAND"),
        (["serf"], "invalid choice: 'serf' (choose from"),
        (["serf"], "). Did you mean serve?"),
        (["translate", "x", "--beam-sise", "3"], "--beam-sise 3. Did you mean --beam-size? (`k"),
        (["train"], "the following arguments are required: --output"),
        (["train", "--output", "x", "--max-steps", "many"], "invalid int value: 'many'"),
        (["translate", "x", "--n-best", "0"], "expected a whole number from 1 to 2147483647"),
        (["export", "x", "y", "--n-best", 400 * "9"], "expected a whole number from 1 to"),
        (["serve", "x", "--port", "65536"], "expected a whole number from 0 to 65535"),
        (["serve", "x", "--versions", 400 * "9"], "expected latest, all, or versions"),
        (["train", "--output", "x", "--preset", "huge"], "invalid choice: 'huge'"),
        (["train", "--output", "x", "--sourc", "y"], "unrecognized arguments: --sourc y"),
        (["translate"], "the following arguments are required: MODEL"),
        (["translate", "x", "--checkpoint", "first"], "invalid choice: 'first'"),
        (["evaluate", "x"], "the following arguments are required: --target"),
        (["evaluate", "--target", "x"], "one of the arguments MODEL --hypothesis is required"),
        (["evaluate", "--target", "x", "no_model"], "follows --target is references: x no_model"),
        (["evaluate", "--target", "tests"], "follows --target is references: tests"),
        (["evaluate", "x", "--hypothesis", "y", "--target", "z"], "not allowed with argument"),
        (["export", "x"], "the following arguments are required: DIR"),
        (["plot", "x", "y"], "the following arguments are required: --output"),
        (["plot"], "the following arguments are required: PICTURE"),
        (["plot", "curves", "--output", "x"], "the following arguments are required: RUN"),
        (["plot", "positions", "--output", "x", "--d-model", "0"], "a whole number from 1 to"),
    ],
)
def test_a_usage_error_is_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit, match="^2$"):
        cli.main(arguments)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def help_of(command, capsys):
    with pytest.raises(SystemExit, match="^0$"):
        cli.main([*command.split(), "--help"])
    return " ".join(capsys.readouterr().out.split())


def in_help(setting):
    """Returns a setting's meaning as a help text shows it."""
    meaning = " ".join(setting.meaning.split())
    return meaning[0].lower() + meaning[1:].removesuffix(".")


@pytest.mark.parametrize("command", ["translate", "evaluate", "export", "plot beam"])
def test_help_of_the_search_comes_from_the_settings(command, capsys):
    meaning = in_help(settings(DecodingConfig)["beam_size"])
    assert f"--beam-size N {meaning}" in help_of(command, capsys)


def test_help_of_train_comes_from_the_settings(capsys):
    """Those of plain `train`, and where they differ those of a file that does not name them."""
    text = help_of("train", capsys)
    assert f"--max-steps N {in_help(settings(TrainingConfig)['max_steps'])}" in text
    assert "decoding.length_penalty: 0.6 Exponent" in text
    assert "training.schedule: inverse_square_root [noam]" in text


@pytest.mark.parametrize("command", ["train", "quickstart"])
def test_a_directory_that_cannot_be_is_refused_before_keras_starts(
    calls, command, error_of, write_files
):
    (file,) = write_files(file="mine\n")
    error = error_of(2, [command, "--output", f"{file}/run"])
    assert f"Received: {file}/run, where {file} is a file." in error
    assert "UTF-8" in error_of(2, [command, "--output", "run\udcff"])
    assert calls == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "LONG"],
        ["translate", "MODEL", "--input", "LONG"],
        ["translate", "MODEL", "--output", "LONG"],
        ["evaluate", "MODEL", "--source", "LONG", "--target", "LONG"],
        ["evaluate", "--hypothesis", "LONG", "--target", "LONG"],
        ["train", "--output", "LONG"],
        ["train", "--output", "new", "--config", "LONG"],
        ["train", "--output", "new", "--source-train", "LONG", "--target-train", "LONG"],
        ["quickstart", "--output", "LONG"],
        ["export", "LONG", "models"],
        ["plot", "MODEL", "A dog.", "--output", "LONG"],
        ["plot", "curves", "LONG", "--output", "a.png"],
        ["plot", "lengths", "MODEL", "--source", "LONG", "--target", "LONG", "--output", "a.png"],
        ["serve", "LONG"],
    ],
)
def test_a_path_that_is_too_long_is_refused_before_keras_starts(
    calls, run_directory, arguments, error_of
):
    paths = {"LONG": 5000 * "x", "MODEL": run_directory}
    arguments = [paths.get(argument, argument) for argument in arguments]
    error = error_of(2, arguments)
    assert "File name too long" in error
    assert calls == []


@pytest.mark.parametrize("arguments", [["quickstart"], ["export", "RUN", "models"]])
def test_commands_that_export_are_refused_at_once_on_another_backend(
    calls, run_directory, arguments, monkeypatch, error_of
):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # it is installed
    arguments = [run_directory if argument == "RUN" else argument for argument in arguments]
    error = error_of(2, arguments)
    assert "Expected Keras on TensorFlow, which a SavedModel needs. Received: KERAS_BACK" in error
    assert calls == []


@pytest.mark.parametrize(
    "arguments",
    [
        "translate MODEL --input FILE --output LINK",
        "translate MODEL --output MODEL/config.yaml",
        "translate MODEL --output MODEL/checkpoints/step/state.json",
        "translate MODEL --input FILE",
        "translate MODEL",
        "evaluate --hypothesis OTHER --target OTHER FILE",
        "plot lengths MODEL --source OTHER --target FILE --output LINK",
        "plot schedule --config FILE --output LINK",
        "lexicon MODEL --source OTHER --target MODEL/lexicon.npz",
        "tune-decoding MODEL --source MODEL/config.yaml --target OTHER",
    ],
)
def test_an_output_that_is_an_input_is_refused_before_keras_starts(
    calls, run_directory, arguments, error_of, tmp_path, monkeypatch
):
    file, link, other = tmp_path / "a", tmp_path / "b.png", tmp_path / "c"
    inside = [pathlib.Path(run_directory, name) for name in ("config.yaml", "lexicon.npz")]
    step = pathlib.Path(run_directory, "checkpoints/step")
    step.mkdir(parents=True)
    for path in (file, other, *inside, step / "state.json"):
        path.write_text("mine\n")
    link.hardlink_to(file)
    arguments = arguments.replace("FILE", str(file)).replace("LINK", str(link))
    arguments = arguments.replace("MODEL", run_directory).replace("OTHER", str(other))
    with open(file, "r+") as stream:  # as `< a >> a` of a shell
        monkeypatch.setattr(sys, "stdin", stream)
        if "--output" not in arguments:
            monkeypatch.setattr(sys.stdout, "fileno", stream.fileno)
        error = error_of(2, arguments.split())
    assert "Expected an output that is none of the inputs." in error
    assert calls == []
    assert all(path.read_text() == "mine\n" for path in (file, *inside, step / "state.json"))
