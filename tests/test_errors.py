"""The error that says which packages to install."""

import configparser
import pathlib
import sys

import pytest

from keras_transformer.errors import PACKAGES, InputError, import_library

SETUP = pathlib.Path(__file__).parents[1] / "setup.cfg"


def test_a_library_that_is_not_installed_is_one_line_with_a_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match='ctranslate2. Received.*pip install "ctr.*, or not') as e:
        import_library("ctranslate2", ", or not.")
    assert "\n" not in str(e.value)
    assert import_library("yaml").safe_load("5") == 5


@pytest.mark.parametrize(
    "library, extra",
    [
        ("apache_beam", "beam"),
        ("ctranslate2", "ctranslate2"),
        ("tokenizers", "convert"),
        ("py3langid", "clean"),
    ],
)
def test_the_packages_are_those_of_the_extra(library, extra):
    """An installed package has no clone: an extra of it could not be named."""
    setup = configparser.ConfigParser()
    setup.read(SETUP)
    wanted = [line.replace(" ", "") for line in setup["options.extras_require"][extra].split("\n")]
    named = PACKAGES[library].replace('"', "").split()
    assert len(named) == len([line for line in wanted if line])
    for package in named:
        assert any(line.startswith(package) for line in wanted), package
