"""`keras-transformer check`, whose checks are in tests/checks."""

import json

import pytest

from keras_transformer import cli

FACTORY = """
import keras

def right():
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.GRU(8, return_sequences=True)(keras.layers.Embedding(30, 8)(ids))
    return keras.Model(ids, keras.layers.Dense(30)(x))

def wrong():
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Conv1D(8, 3, padding="same")(keras.layers.Embedding(30, 8)(ids))
    return keras.Model(ids, keras.layers.Dense(30)(x))

def none():
    return 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"factories_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(FACTORY)
    return name


def test_a_model_of_a_user_is_checked(module, capsys):
    only = ["--only", "causality", "neighbours", "steps"]
    assert cli.main(["check", f"{module}:right", *only]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["held", "held", "not"]
    assert lines[-1] == "2 held, 0 failed, 1 not applicable"
    assert cli.main(["check", f"{module}:wrong", *only, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["causality"]["status"] == "failed" and found["causality"]["advice"]


def test_an_export_is_checked(exported, capsys):
    only = ["files", "translations alone and together", "empty text", "causality"]
    assert cli.main(["check", str(exported), "--only", *only]) == 0
    out = capsys.readouterr().out
    assert "3 held, 0 failed, 1 not applicable" in out and "checksums are right" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "none: no such directory"),
        (["no_such_module:model"], "Expected a function of a module that can be imported"),
        (["MODULE:other"], "has no attribute 'other'"),
        (["MODULE:none"], "Expected a Keras model or a Subject"),
        (["MODULE:right", "--only", "casuality"], "Did you mean causality?"),
        (["MODULE:right", "--target", "t.txt"], "Expected --source with --target"),
        (["MODULE:right", "--source", "t.txt"], "t.txt: No such file"),
    ],
)
def test_mistakes_are_one_line(arguments, message, module, error_of):
    arguments = [word.replace("MODULE", module) for word in arguments]
    assert message in error_of(2, ["check", *arguments])


def test_a_check_of_a_users_module_is_made(module, tmp_path, capsys):
    extended = f"""
from keras_transformer.checks import check, held
from {module} import right

@check("of a user")
def of_a_user(subject):
    return held("seen")
"""
    (tmp_path / f"{module}_more.py").write_text(extended)
    from keras_transformer.checks import CHECKS

    try:
        assert cli.main(["check", f"{module}_more:right", "--only", "of a user"]) == 0
    finally:
        CHECKS.pop("of a user")
    assert "of a user" in capsys.readouterr().out
