"""`keras-transformer info`."""

import platform
import re

import pytest

from keras_transformer import __version__, cli
from keras_transformer.config import Config


def lines_of(text):
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


def test_it_names_versions_devices_and_what_a_run_is(tmp_path, capsys):
    Config.from_preset("tiny").override(["data.train=[{tsv: /home/me/secret.tsv}]"]).save(
        tmp_path / "config.yaml"
    )
    assert cli.main(["info", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    lines = lines_of(text)
    assert lines["keras-transformer"] == __version__
    assert lines["python"] == platform.python_version()
    assert re.fullmatch(r"\d+ of \d+, .+", lines["cores"]) and "cpu:0" in lines["devices"]
    assert lines["run"] == "no checkpoint" and "d_model=128" in lines["model"]
    assert "secret" not in text


@pytest.mark.parametrize("argument", ["--version", "info"])
def test_the_version_of_the_package(argument, capsys):
    try:
        assert cli.main([argument]) == 0
    except SystemExit as ended:
        assert ended.code == 0
    assert __version__ in capsys.readouterr().out.splitlines()[0]


def test_a_directory_of_something_else_is_refused(tmp_path, error_of):
    assert "which is neither. Check the name" in error_of(2, ["info", str(tmp_path)])
